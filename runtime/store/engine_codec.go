package store

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"nf/runtime/execution"
)

// Codec says how a payload is kept: 0 is JSON as it stands, 1 is JSON compressed with zstd.
type Codec = int16

const (
	codecJSON Codec = 0
	codecZstd Codec = 1
)

// compressAbove is the size in bytes from which a payload is compressed (B1.1).
const compressAbove = 1 << 10

// maxUnpacked bounds what a stored payload may unpack to: the largest payload, and room for what is kept beside it.
const maxUnpacked = 2*execution.MaxPayload + 1<<20

// packers hold the encoder and decoder of the process; both are safe for concurrent use.
var packers = sync.OnceValue(func() struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
} {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
	if err != nil {
		panic(err) //nolint:forbidigo // options are constant
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		panic(err) //nolint:forbidigo // options are constant
	}
	return struct {
		enc *zstd.Encoder
		dec *zstd.Decoder
	}{enc, dec}
})

// pack gives a payload as it is stored. What compression does not make smaller stays as it is.
func pack(body []byte) (Codec, []byte) {
	if len(body) <= compressAbove {
		return codecJSON, body
	}
	small := packers().enc.EncodeAll(body, make([]byte, 0, len(body)/2))
	if len(small) >= len(body) {
		return codecJSON, body
	}
	return codecZstd, small
}

var errCodec = errors.New("unknown codec of a payload")

// unpack gives a payload as it was written.
func unpack(codec Codec, body []byte) ([]byte, error) {
	switch {
	case body == nil || codec == codecJSON:
		return body, nil
	case codec == codecZstd:
		out, err := packers().dec.DecodeAll(body, nil)
		if err != nil {
			return nil, fmt.Errorf("unpacking a payload: %w", err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: %d", errCodec, codec)
}
