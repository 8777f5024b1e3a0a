package engine

import (
	"sync"

	"nf/runtime/execution"
	"nf/runtime/store"
)

// budgets holds what this process has decided and not committed, by definition (X11): the sums of the database do not show it yet.
type budgets struct {
	mu      sync.Mutex
	pending map[store.BudgetKey]execution.BudgetDelta
}

func (b *budgets) init() { b.pending = map[store.BudgetKey]execution.BudgetDelta{} }

// add notes decisions (sign 1) or their end, committed or not (sign -1).
func (b *budgets) add(deltas map[store.BudgetKey]execution.BudgetDelta, sign int64) {
	if len(deltas) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, d := range deltas {
		sum := b.pending[key]
		sum.Total += sign * d.Total
		sum.Retries += sign * d.Retries
		if sum.Total == 0 && sum.Retries == 0 {
			delete(b.pending, key)
			continue
		}
		b.pending[key] = sum
	}
}

// plus gives a loaded budget with what is pending.
func (b *budgets) plus(key store.BudgetKey, loaded execution.Budget) execution.Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	loaded.Total += b.pending[key].Total
	loaded.Retries += b.pending[key].Retries
	return loaded
}

// shards are the eight numbers of a runner under which its connections add to retry budgets: no two connections share one, and
// after an end of unknown outcome the old backend may still hold the rows of its number, so another one is taken.
type shards struct {
	mu   sync.Mutex
	free []int64 // the one that rests longest first
}

func newShards(runner int32) *shards {
	s := &shards{}
	for i := range int64(8) {
		s.free = append(s.free, int64(runner)*8+i)
	}
	return s
}

// take gives a number for a new flusher or starter.
func (s *shards) take() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.free[0]
	s.free = s.free[1:]
	return n
}

// swap gives another number for one whose connection ended in an unknown state.
func (s *shards) swap(old int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, old)
	n := s.free[0]
	s.free = s.free[1:]
	return n
}
