package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/clock"
)

// NoticeKind says what a notification is about. Notifications are hints: polling is the truth (B6).
type NoticeKind string

// The kinds of notifications.
const (
	NoticeReady    NoticeKind = "r"            // a queue has got work
	NoticeFreed    NoticeKind = "f"            // a place or a permit of a queue is free
	NoticeRegistry NoticeKind = NotifyRegistry // declarations have changed
	NoticeResync   NoticeKind = "resync"       // made here after a reconnect: anything may have been missed
)

// Notice is one notification of another process, or of the listener itself.
type Notice struct {
	Kind  NoticeKind
	Queue QueueAt // of NoticeReady and NoticeFreed
}

const (
	gatherFor   = 10 * time.Millisecond // dirty queues are gathered this long, up to as much again and a half
	proveWithin = 2 * time.Second
	proveEvery  = 30 * time.Second
	listenRetry = time.Second
	listenSlow  = time.Minute
)

// Notifier sends and receives notifications of one process. What it is told to send is gathered and sent outside every hot transaction; the
// listener has a connection of its own. Safe for concurrent use; Run does the work.
type Notifier struct {
	s     *Store
	clock clock.Clock
	self  string

	mu    sync.Mutex
	dirty map[string]bool
	wake  chan struct{}
	subs  []func(Notice)

	proven atomic.Bool
	// down holds why the listener does not work; empty while it is proven, and before the first try.
	down atomic.Pointer[string]
}

// NewNotifier makes the notifier of a process.
func NewNotifier(s *Store, c clock.Clock) *Notifier {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Notifier{s: s, clock: c, self: hex.EncodeToString(id[:]), dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// Subscribe has fn called for each notice of another process. fn must not block. Call it before Run.
func (n *Notifier) Subscribe(fn func(Notice)) { n.subs = append(n.subs, fn) }

// Proven says whether notifications have been seen to arrive: polls may then be rarer.
func (n *Notifier) Proven() bool { return n.proven.Load() }

// Degraded gives the verdict notify_degraded with its reason, "" while all is well.
func (n *Notifier) Degraded() string {
	if why := n.down.Load(); why != nil && !n.proven.Load() {
		return *why
	}
	return ""
}

// Send notes that other processes should look at a queue. It never blocks and never fails.
func (n *Notifier) Send(kind NoticeKind, q QueueAt) {
	n.mu.Lock()
	n.dirty[fmt.Sprintf("%s:%s:%d:%d", kind, n.self, q.NS, q.QueueID)] = true
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Run sends and listens until ctx ends.
func (n *Notifier) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { n.send(ctx) })
	group.Go(func() { n.listen(ctx) })
	group.Wait()
	return nil
}

// send flushes what is dirty every 10–25 ms, in a statement of its own.
func (n *Notifier) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		if !pause(ctx, gatherFor+time.Duration(mathrand.Int64N(int64(gatherFor*3/2)))) {
			return
		}
		n.mu.Lock()
		payloads := slices.Sorted(maps.Keys(n.dirty))
		clear(n.dirty)
		n.mu.Unlock()
		n.notify(ctx, payloads) // lost: the others poll
	}
}

func (n *Notifier) notify(ctx context.Context, payloads []string) {
	if len(payloads) == 0 {
		return
	}
	channel, err := n.s.Channel(ctx)
	if err != nil {
		return
	}
	_ = n.s.InTx(ctx, Hot, "notify", func(ctx context.Context, t *Tx) error {
		_, err := t.exec(ctx, "notify", "", channel, payloads)
		return err
	})
}

// listen keeps the listener connected, with back-off: a dead one never spins.
func (n *Notifier) listen(ctx context.Context) {
	wait := listenRetry
	for ctx.Err() == nil {
		started := n.clock.Now()
		err := n.listenOnce(ctx)
		n.proven.Store(false)
		if ctx.Err() != nil {
			return
		}
		why := err.Error()
		n.down.Store(&why)
		if n.clock.Now().Sub(started) > listenSlow {
			wait = listenRetry
		}
		if !pause(ctx, wait/2+time.Duration(mathrand.Int64N(int64(wait)))) {
			return
		}
		wait = min(2*wait, listenSlow)
	}
}

var errNotProven = errors.New("a notification to itself did not arrive within 2 s")

// listenOnce connects, listens, proves that notifications arrive, and hands them out until the connection fails.
func (n *Notifier) listenOnce(ctx context.Context) error {
	channel, err := n.s.Channel(ctx)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, n.s.connConfig(nil))
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	for i := 0; ; i++ {
		if err := n.prove(ctx, conn, channel, i); err != nil {
			return err
		}
		if !n.proven.Swap(true) {
			n.tell(Notice{Kind: NoticeResync})
		}
		if err := n.receive(ctx, conn, proveEvery, ""); err != nil {
			return err
		}
	}
}

// prove notifies itself and waits for it.
func (n *Notifier) prove(ctx context.Context, conn *pgx.Conn, channel string, i int) error {
	proof := "self:" + n.self + ":" + strconv.Itoa(i)
	within, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	if _, err := conn.Exec(within, statement("notify", ""), channel, []string{proof}); err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	return n.receive(ctx, conn, proveWithin, proof)
}

// receive hands out notifications for a time, or until the proof arrives.
func (n *Notifier) receive(ctx context.Context, conn *pgx.Conn, span time.Duration, proof string) error {
	within, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for {
		got, err := conn.WaitForNotification(within)
		switch {
		case err == nil && proof != "" && got.Payload == proof:
			return nil
		case err == nil:
			if notice, ok := n.parse(got.Payload); ok {
				n.tell(notice)
			}
		case within.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
			if proof != "" {
				return errNotProven
			}
			return nil
		default:
			return fmt.Errorf("listener: %w", err)
		}
	}
}

// parse reads a payload. What this process sent itself, and what it does not know, is nothing.
func (n *Notifier) parse(payload string) (Notice, bool) {
	if payload == string(NoticeRegistry) {
		return Notice{Kind: NoticeRegistry}, true
	}
	part := strings.Split(payload, ":")
	if len(part) != 4 || part[1] == n.self || (NoticeKind(part[0]) != NoticeReady && NoticeKind(part[0]) != NoticeFreed) {
		return Notice{}, false
	}
	ns, err1 := strconv.ParseInt(part[2], 10, 32)
	id, err2 := strconv.ParseInt(part[3], 10, 32)
	return Notice{NoticeKind(part[0]), QueueAt{int32(ns), int32(id)}}, err1 == nil && err2 == nil
}

func (n *Notifier) tell(notice Notice) {
	for _, fn := range n.subs {
		fn(notice)
	}
}

// pause waits; false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
