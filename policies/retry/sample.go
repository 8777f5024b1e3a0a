package retry

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// Unit gives the jitter's sample in [0, 1) of the decision after an attempt of a task run failed (X1, contract 3.1): the top 53
// bits of a fixed hash. iteration is the path of pass numbers, "0" outside loops; attempt counts from 1.
func Unit(executionID, ref, iteration string, attempt int) float64 {
	return float64(sample(executionID, ref, iteration, attempt)>>11) / (1 << 53)
}

func sample(executionID, ref, iteration string, attempt int) uint64 {
	sum := sha256.Sum256([]byte(executionID + "\n" + ref + "\n" + iteration + "\n" + strconv.Itoa(attempt)))
	return binary.BigEndian.Uint64(sum[:8])
}
