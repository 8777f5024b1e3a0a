package api

import (
	"context"
	"time"

	"nf/runtime/queue"
	"nf/runtime/store"
)

// enterPoll counts a long poll of a key; beyond 1,000 open ones it is refused (contract 4.1).
func (s *Server) enterPoll(key string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls[key] >= maxPolls {
		return nil, &failure{
			code: codeLimitExceeded, message: "this key has 1,000 polls open", retryAfter: 1,
			details: map[string]any{"control": "polls", "limit": maxPolls, "current": s.polls[key], "retryAfterSeconds": 1},
		}
	}
	s.polls[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.polls[key]--; s.polls[key] == 0 {
			delete(s.polls, key)
		}
	}, nil
}

// untilClosing gives a context of the request that also ends when the server closes.
func (c *call) untilClosing() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.Context())
	stop := context.AfterFunc(c.s.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

func leasesOf(a queue.Answer) []store.Leased {
	leased := make([]store.Leased, len(a.Tasks))
	for i := range a.Tasks {
		leased[i] = a.Tasks[i].Leased
	}
	return leased
}

// giveBack returns leases whose answer was not written. The request is over, so it has a context of its own.
func (s *Server) giveBack(leased []store.Leased) {
	if len(leased) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) //nolint:forbidigo // the client has gone
	defer cancel()
	s.Queue.GiveBack(ctx, leased)
}
