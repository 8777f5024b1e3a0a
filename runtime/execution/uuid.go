package execution

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"
)

// UUID is an execution's id: UUID v7, its first 48 bits database time in milliseconds (design/03 B1.10).
type UUID [16]byte

// ErrBadUUID says that a text is not a UUID in its canonical form.
var ErrBadUUID = errors.New("not a UUID")

// String gives the canonical lower-case form.
func (u UUID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], u[10:16])
	return string(b[:])
}

// ParseUUID reads the canonical form, either case.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, ErrBadUUID
	}
	plain := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(u[:], []byte(plain)); err != nil {
		return UUID{}, ErrBadUUID
	}
	return u, nil
}

// NewUUID makes a UUID v7 of a time and ten random bytes, of which 74 bits are used.
func NewUUID(at time.Time, random [10]byte) UUID {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	var u UUID
	copy(u[:6], ms[2:])
	copy(u[6:], random[:])
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u
}

// Time gives the time in the id.
func (u UUID) Time() time.Time {
	ms := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
	return time.UnixMilli(ms).UTC()
}

// Day gives the UTC day in the id, as YYYYMMDD: it names the partition of the execution's history.
func (u UUID) Day() string { return u.Time().Format("20060102") }
