package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/execution"
)

// GateClass is the class of an advisory lock (B5). Its order is the lock order of level L1.
type GateClass byte

// The classes of gates.
const (
	GateRegistry       GateClass = 1 // one an installation: who declares
	GateNamespaceQuota GateClass = 2
	GateWorkflowCap    GateClass = 3
	GateAdmission      GateClass = 4
	GateDefinition     GateClass = 5
	GateQueue          GateClass = 6
	GateTarget         GateClass = 7
	GateSemaphore      GateClass = 8
)

// gateWait is how long a claim or a start waits for a gate before it is told that the gate is busy (S1b).
const gateWait = 200 * time.Millisecond

// ErrBusy says that a lock was not had in time: the same transaction may be tried again after 50–150 ms.
var ErrBusy = errors.New("busy")

// GateKey gives the advisory key of a gate: class << 56 | the first 7 bytes of SHA-256("nf" ‖ install_id ‖ class ‖ ns ‖ name), ns in four bytes,
// big-endian. So the order of the values is the lock order. A collision costs contention, not correctness.
func GateKey(install execution.UUID, class GateClass, ns int32, name string) int64 {
	text := make([]byte, 0, 2+16+1+4+len(name))
	text = append(text, "nf"...)
	text = append(text, install[:]...)
	text = append(text, byte(class))
	text = binary.BigEndian.AppendUint32(text, uint32(ns)) //nolint:gosec // the same bits
	text = append(text, name...)
	sum := sha256.Sum256(text)
	key := [8]byte{byte(class)}
	copy(key[1:], sum[:7])
	return int64(binary.BigEndian.Uint64(key[:])) //nolint:gosec // class < 128
}

// ObjectGate gives the key of the gate of an object or a queue, which its number names: a task definition (object), a queue (its main_id), a target
// (object), a semaphore (object).
func ObjectGate(install execution.UUID, class GateClass, ns, id int32) int64 {
	return GateKey(install, class, ns, strconv.Itoa(int(id)))
}

// RegistryGate gives the key of the lock that every change of declarations takes first.
func RegistryGate(install execution.UUID) int64 {
	return GateKey(install, GateRegistry, 0, "registry")
}

// LockGates takes advisory locks, ascending by key, one statement each, all in one round trip. It waits for each at most wait (0 = 200 ms)
// and gives ErrBusy after that; the transaction must then be given up. The time-out of later locks is the lane's again.
// The caller reads the clock and every count in later statements (X10).
func (t *Tx) LockGates(ctx context.Context, keys []int64, wait time.Duration) error {
	if len(keys) == 0 {
		return nil
	}
	p := t.pipeline()
	t.queueGates(p, keys, wait)
	return busyGate(p.send(ctx))
}

// queueGates puts the locks of LockGates into a pipeline, before the statements that read under them.
func (t *Tx) queueGates(p *pipeline, keys []int64, wait time.Duration) {
	if wait <= 0 {
		wait = gateWait
	}
	keys = slices.Clone(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	p.queue("set_local", "", []any{"lock_timeout", millis(wait)}, nil)
	for _, key := range keys {
		p.queue("lock_gate", "", []any{key}, nil)
	}
	p.queue("set_local", "", []any{"lock_timeout", millis(t.lockTimeout)}, nil)
}

// busyGate says ErrBusy where a gate was not had in time.
func busyGate(err error) error {
	if Code(err) == "55P03" {
		return fmt.Errorf("gate: %w: %w", ErrBusy, err)
	}
	return err
}

// AllowBitmaps lets the planner use bitmap scans for the rest of the transaction: listings and searches only (B8).
func (t *Tx) AllowBitmaps(ctx context.Context) error {
	return t.setLocal(ctx, "enable_bitmapscan", "on")
}

// setLocal changes a setting for the rest of the transaction.
func (t *Tx) setLocal(ctx context.Context, name, value string) error {
	_, err := t.exec(ctx, "set_local", "", name, value)
	return err
}

// Now reads the database clock (A0.1): after the locks, once, for the whole transaction.
func (t *Tx) Now(ctx context.Context) (time.Time, error) {
	rows, err := t.query(ctx, "now", "")
	if err != nil {
		return time.Time{}, err
	}
	now, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
	if err != nil {
		return time.Time{}, fmt.Errorf("now: %w", err)
	}
	return now.UTC(), nil
}
