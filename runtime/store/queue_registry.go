package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"nf/runtime/execution"
)

// QueueAt names a physical queue by its number.
type QueueAt struct {
	NS      int32
	QueueID int32
}

// QueueInfo is a physical queue. All but Gated never changes.
type QueueInfo struct {
	QueueAt
	Key    execution.QueueKey
	MainID int32 // the queue that people see; equal to QueueID for the row without target and shard
	// Gated is what was last seen: a hint for the form of a claim, SQL is the truth.
	Gated bool
}

// QueueCache remembers queues for ever: rows of nf_queue are never deleted. Safe for concurrent use.
type QueueCache struct {
	s    *Store
	mu   sync.RWMutex
	keys map[execution.QueueKey]QueueInfo
	ids  map[QueueAt]QueueInfo
}

// Queues gives the cache of this store.
func (s *Store) Queues() *QueueCache {
	s.queuesOnce.Do(func() {
		s.queues = &QueueCache{s: s, keys: map[execution.QueueKey]QueueInfo{}, ids: map[QueueAt]QueueInfo{}}
	})
	return s.queues
}

// Known gives a queue that this process has seen before. It never touches the database.
func (c *QueueCache) Known(key execution.QueueKey) (QueueInfo, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	q, ok := c.keys[nameOnly(key)]
	return q, ok
}

// KnownAt gives a queue by its number, if this process has seen it before.
func (c *QueueCache) KnownAt(at QueueAt) (QueueInfo, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	q, ok := c.ids[at]
	return q, ok
}

// Ensure gives a queue and makes it if it is new (S16), in transactions of its own: never call it while a connection is held. A queue and
// its gating are written under the definition's gate, so that it cannot miss a gate that is being added; ErrBusy if that is not had in a second.
func (c *QueueCache) Ensure(ctx context.Context, lane Lane, key execution.QueueKey) (QueueInfo, error) {
	if q, ok := c.Known(key); ok {
		return q, nil
	}
	if key.TargetID != 0 || key.Shard != 0 { // the main row comes first
		main := key
		main.TargetNS, main.TargetID, main.Shard = 0, 0, 0
		q, err := c.Ensure(ctx, lane, main)
		if err != nil {
			return QueueInfo{}, err
		}
		return c.ensure(ctx, lane, key, q.QueueID)
	}
	return c.ensure(ctx, lane, key, 0)
}

func (c *QueueCache) ensure(ctx context.Context, lane Lane, key execution.QueueKey, mainID int32) (QueueInfo, error) {
	q, err := c.find(ctx, lane, key)
	if !errors.Is(err, ErrNotFound) {
		return q, err
	}
	install, err := c.s.InstallID(ctx)
	if err != nil {
		return QueueInfo{}, err
	}
	err = c.s.InTx(ctx, lane, "queue_register", func(ctx context.Context, tx *Tx) error {
		if key.DefID != 0 {
			if err := tx.LockGates(ctx, []int64{ObjectGate(install, GateDefinition, key.NS, key.DefID)}, time.Second); err != nil {
				return err
			}
		}
		_, err := tx.exec(ctx, "queue_insert", "", key.NS, key.Name, key.Domain, key.TargetNS, key.TargetID, key.Shard, key.System, mainID, key.DefID)
		return err
	})
	var unknown *CommitUnknownError
	if err != nil && !errors.As(err, &unknown) { // the row may be there all the same; reading tells
		return QueueInfo{}, err
	}
	return c.find(ctx, lane, key)
}

func (c *QueueCache) find(ctx context.Context, lane Lane, key execution.QueueKey) (q QueueInfo, err error) {
	err = c.s.InTx(ctx, lane, "queue_find", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "queue_by_key", "", key.NS, key.Name, key.Domain, key.TargetNS, key.TargetID, key.Shard)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { q = readQueue(r); return nil })
	})
	if err == nil && q.QueueID == 0 {
		err = fmt.Errorf("queue %q: %w", key.Name, ErrNotFound)
	}
	if err != nil {
		return QueueInfo{}, err
	}
	c.put(q)
	return q, nil
}

// ByID gives a queue by its number, ErrNotFound if there is none.
func (c *QueueCache) ByID(ctx context.Context, lane Lane, at QueueAt) (q QueueInfo, err error) {
	if q, ok := c.KnownAt(at); ok {
		return q, nil
	}
	err = c.s.InTx(ctx, lane, "queue_find", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "queue_by_id", "", at.NS, at.QueueID)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { q = readQueue(r); return nil })
	})
	if err == nil && q.QueueID == 0 {
		err = fmt.Errorf("queue %d: %w", at.QueueID, ErrNotFound)
	}
	if err != nil {
		return QueueInfo{}, err
	}
	c.put(q)
	return q, nil
}

// System reads all queues that runners serve, in order of namespace and number.
func (c *QueueCache) System(ctx context.Context, lane Lane) (all []QueueInfo, err error) {
	var after QueueAt
	for full := true; full; {
		n := 0
		err = c.s.InTx(ctx, lane, "queue_list", func(ctx context.Context, tx *Tx) error {
			n = 0
			rows, err := tx.query(ctx, "queue_system_list", "", after.NS, after.QueueID)
			if err != nil {
				return err
			}
			return each(rows, func(r *row) error {
				all = append(all, readQueue(r))
				n++
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
		if full = n == 1000; full {
			after = all[len(all)-1].QueueAt
		}
	}
	for _, q := range all {
		c.put(q)
	}
	return all, nil
}

// Seen notes whether a queue was last seen gated.
func (c *QueueCache) Seen(at QueueAt, gated bool) {
	if q, ok := c.KnownAt(at); ok && q.Gated != gated {
		q.Gated = gated
		c.put(q)
	}
}

func (c *QueueCache) put(q QueueInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys[nameOnly(q.Key)] = q
	c.ids[q.QueueAt] = q
}

// nameOnly is the part of a key that the unique index holds.
func nameOnly(key execution.QueueKey) execution.QueueKey {
	key.System, key.DefID = false, 0
	return key
}

func readQueue(r *row) QueueInfo {
	var q QueueInfo
	q.NS, q.QueueID, q.MainID = r.i32(), r.i32(), r.i32()
	q.Key.NS, q.Key.Name, q.Key.Domain, q.Key.System, q.Key.DefID = q.NS, r.text(), r.text(), r.boolean(), r.i32()
	q.Key.TargetNS, q.Key.TargetID, q.Key.Shard, q.Gated = r.i32(), r.i32(), r.i16(), r.boolean()
	return q
}

// Discover says which of the given queues hold anything, in their order.
func (s *Store) Discover(ctx context.Context, lane Lane, queues []QueueAt) (found []QueueAt, err error) {
	if len(queues) == 0 {
		return nil, nil
	}
	ns, id := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID)
	for _, q := range queues {
		ns.i32(q.NS)
		id.i32(q.QueueID)
	}
	err = s.InTx(ctx, lane, "discover", func(ctx context.Context, tx *Tx) error {
		found = found[:0]
		rows, err := tx.query(ctx, "queue_discover", "", ns, id)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			found = append(found, QueueAt{r.i32(), r.i32()})
			return nil
		})
	})
	return found, err
}
