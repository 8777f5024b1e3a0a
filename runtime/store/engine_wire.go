package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"nf/runtime/execution"
)

// The hot path sends whole batches as one array a column and reads whole batches back. Both sides speak the binary format
// directly: pgx would box every element and look up a plan for each, which costs more than the statements.

// column is one array parameter in the binary format, filled element by element. The zero value is not usable: newColumn.
type column struct {
	elem uint32 // OID of the element type
	n    int32
	null bool
	buf  []byte // elements, each with its length in front
}

func newColumn(elem uint32) *column { return &column{elem: elem} }

// reset empties the column and keeps its memory.
func (c *column) reset() { c.n, c.null, c.buf = 0, false, c.buf[:0] }

func (c *column) head(size int) {
	c.n++
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(size)) //nolint:gosec // sizes are those of rows
}

func (c *column) nothing() {
	c.n++
	c.null = true
	c.buf = binary.BigEndian.AppendUint32(c.buf, 0xffffffff)
}

func (c *column) i16(v int16) {
	c.head(2)
	c.buf = binary.BigEndian.AppendUint16(c.buf, uint16(v)) //nolint:gosec // the same bits
}

func (c *column) i32(v int32) {
	c.head(4)
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(v)) //nolint:gosec // the same bits
}

// i32OrNull writes 0 as null.
func (c *column) i32OrNull(v int32) {
	if v == 0 {
		c.nothing()
		return
	}
	c.i32(v)
}

func (c *column) i64(v int64) {
	c.head(8)
	c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(v)) //nolint:gosec // the same bits
}

// i64OrNull writes 0 as null.
func (c *column) i64OrNull(v int64) {
	if v == 0 {
		c.nothing()
		return
	}
	c.i64(v)
}

func (c *column) boolean(v bool) {
	c.head(1)
	b := byte(0)
	if v {
		b = 1
	}
	c.buf = append(c.buf, b)
}

func (c *column) uuid(v execution.UUID) {
	c.head(16)
	c.buf = append(c.buf, v[:]...)
}

func (c *column) text(v string) {
	c.head(len(v))
	c.buf = append(c.buf, v...)
}

// textOrNull writes "" as null.
func (c *column) textOrNull(v string) {
	if v == "" {
		c.nothing()
		return
	}
	c.text(v)
}

// bytes writes nil as null.
func (c *column) bytes(v []byte) {
	if v == nil {
		c.nothing()
		return
	}
	c.head(len(v))
	c.buf = append(c.buf, v...)
}

// time writes the zero time as null.
func (c *column) time(v time.Time) {
	if v.IsZero() {
		c.nothing()
		return
	}
	c.i64(microsOf(v))
}

const (
	postgresEpoch = 946_684_800_000_000 // microseconds of Unix time at 2000-01-01
	infinity      = int64(^uint64(0) >> 1)
)

// microsOf gives Postgres' count of a time. What is finer than a microsecond is cut, as Postgres itself keeps no more.
func microsOf(t time.Time) int64 { return t.UnixMicro() - postgresEpoch }

func timeOf(micros int64) time.Time {
	if micros == infinity || micros == ^infinity {
		return time.Time{}
	}
	return time.UnixMicro(micros + postgresEpoch).UTC()
}

// appendTo writes the array with its header.
func (c *column) appendTo(buf []byte) []byte {
	if c.n == 0 {
		buf = binary.BigEndian.AppendUint32(buf, 0)
		buf = binary.BigEndian.AppendUint32(buf, 0)
		return binary.BigEndian.AppendUint32(buf, c.elem)
	}
	nulls := uint32(0)
	if c.null {
		nulls = 1
	}
	buf = binary.BigEndian.AppendUint32(buf, 1)
	buf = binary.BigEndian.AppendUint32(buf, nulls)
	buf = binary.BigEndian.AppendUint32(buf, c.elem)
	buf = binary.BigEndian.AppendUint32(buf, uint32(c.n)) //nolint:gosec // never negative
	buf = binary.BigEndian.AppendUint32(buf, 1)
	return append(buf, c.buf...)
}

// columnCodec lets an array type take columns; everything else goes the way of pgx.
type columnCodec struct{ pgtype.Codec }

// PlanEncode implements pgtype.Codec.
func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(*column); ok && format == pgtype.BinaryFormatCode {
		return columnPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type columnPlan struct{}

// Encode implements pgtype.EncodePlan.
func (columnPlan) Encode(value any, buf []byte) ([]byte, error) {
	c, ok := value.(*column)
	if !ok {
		return nil, fmt.Errorf("a column was expected, got %T", value)
	}
	return c.appendTo(buf), nil
}

// registerArrays teaches a connection's array types to take columns. Every pool calls it for each new connection.
func registerArrays(m *pgtype.Map) {
	for _, oid := range []uint32{
		pgtype.BoolArrayOID, pgtype.ByteaArrayOID, pgtype.Int2ArrayOID, pgtype.Int4ArrayOID, pgtype.Int8ArrayOID,
		pgtype.TextArrayOID, pgtype.TimestamptzArrayOID, pgtype.UUIDArrayOID,
	} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			continue
		}
		if _, done := t.Codec.(columnCodec); !done {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: columnCodec{t.Codec}})
		}
	}
}

// errWidth says that a value has another width than the Go side expects; the prepare test keeps it from happening.
var errWidth = errors.New("a column has another width than expected")

// row reads the values of one result row in order, in the binary format. The first error sticks.
type row struct {
	values [][]byte
	i      int
	err    error
}

func (r *row) next(size int) []byte {
	if r.i >= len(r.values) {
		r.err = errWidth
		return nil
	}
	v := r.values[r.i]
	r.i++
	if v != nil && size > 0 && len(v) != size {
		r.err = fmt.Errorf("column %d: %w", r.i, errWidth)
		return nil
	}
	return v
}

func (r *row) i16() int16 {
	if v := r.next(2); v != nil {
		return int16(binary.BigEndian.Uint16(v)) //nolint:gosec // the same bits
	}
	return 0
}

func (r *row) i32() int32 {
	if v := r.next(4); v != nil {
		return int32(binary.BigEndian.Uint32(v)) //nolint:gosec // the same bits
	}
	return 0
}

func (r *row) i64() int64 {
	if v := r.next(8); v != nil {
		return int64(binary.BigEndian.Uint64(v)) //nolint:gosec // the same bits
	}
	return 0
}

func (r *row) boolean() bool {
	v := r.next(1)
	return v != nil && v[0] != 0
}

func (r *row) uuid() (u execution.UUID) {
	if v := r.next(16); v != nil {
		copy(u[:], v)
	}
	return u
}

func (r *row) text() string { return string(r.next(0)) }

// bytes gives a copy, nil for null.
func (r *row) bytes() []byte {
	v := r.next(0)
	if v == nil {
		return nil
	}
	return append(make([]byte, 0, len(v)), v...)
}

// time gives the zero time for null and for infinity.
func (r *row) time() time.Time {
	v := r.next(8)
	if v == nil {
		return time.Time{}
	}
	return timeOf(int64(binary.BigEndian.Uint64(v))) //nolint:gosec // the same bits
}

// each reads every row of a result.
func each(rows pgx.Rows, fn func(*row) error) error {
	defer rows.Close()
	var r row
	for rows.Next() {
		r = row{values: rows.RawValues()}
		if err := fn(&r); err != nil {
			return err
		}
		if r.err != nil {
			return r.err
		}
	}
	return rows.Err()
}

// reader makes the reading half of a pipelined statement from a function over its rows.
func reader(fn func(*row) error) func(pgx.BatchResults) error {
	return func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		return each(rows, fn)
	}
}
