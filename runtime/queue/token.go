package queue

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"nf/runtime/store"
)

// tokenBytes is how much of the HMAC stands in a token.
const tokenBytes = 16

// Signer makes and checks lease tokens (contract 4.3): fence "." base64url of the first 16 bytes of HMAC-SHA-256 over namespace, task id and fence. It
// holds the keys of the installation: the newest signs, all verify. Immutable.
type Signer struct{ keys [][]byte }

// NewSigner makes a signer; keys come newest first.
func NewSigner(keys []store.InstallKey) Signer {
	var s Signer
	for _, k := range keys {
		s.keys = append(s.keys, k.Key)
	}
	return s
}

// Sign gives the token of a lease. namespace is its name, taskID its text on the wire.
func (s Signer) Sign(namespace, taskID string, fence int64) string {
	if len(s.keys) == 0 {
		return ""
	}
	return strconv.FormatInt(fence, 10) + "." + base64.RawURLEncoding.EncodeToString(mac(s.keys[0], namespace, taskID, fence))
}

// Verify gives the fence of a token that was signed for this task of this namespace. It compares in constant time and says nothing about why a token
// is false.
func (s Signer) Verify(token, namespace, taskID string) (fence int64, ok bool) {
	number, sum, found := strings.Cut(token, ".")
	fence, err := strconv.ParseInt(number, 10, 64)
	got, err2 := base64.RawURLEncoding.Strict().DecodeString(sum)
	if !found || err != nil || err2 != nil || len(got) != tokenBytes || strconv.FormatInt(fence, 10) != number {
		return 0, false
	}
	for _, key := range s.keys {
		if hmac.Equal(got, mac(key, namespace, taskID, fence)) {
			ok = true
		}
	}
	if !ok {
		return 0, false
	}
	return fence, true
}

func mac(key []byte, namespace, taskID string, fence int64) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(namespace + "\n" + taskID + "\n" + strconv.FormatInt(fence, 10))) // never fails
	return h.Sum(nil)[:tokenBytes]
}
