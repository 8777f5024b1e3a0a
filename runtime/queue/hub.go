package queue

import (
	"slices"
	"sync"

	"nf/runtime/store"
)

// hub is where long polls park. It knows nothing of the database.
type hub struct {
	mu    sync.Mutex
	lines map[store.QueueAt]*line
	seats map[int64]*poll // polls with places given to the engine, by claim id
}

// line is one queue with polls that wait for it. A line without polls does not exist.
type line struct {
	info    store.QueueInfo
	tags    []string // gates that the queue passes: a place freed under one of them may help it
	polls   []*poll  // first come, first served
	claims  int      // polls of this line that claim at present
	again   bool     // work was announced while nobody could be woken
	blocked bool     // the last claim was refused by a gate: only a freed place or the periodic look wakes it
}

// claimsAtOnce bounds the claims that wake-ups of one queue start at once in a process.
const claimsAtOnce = 4

// poll is one long poll.
type poll struct {
	queues  []store.QueueAt
	want    map[store.QueueAt]int
	worker  string
	leaseMs int64
	claimID int64
	wake    chan store.QueueAt // one slot: the queue to claim
	filled  chan struct{}      // one slot: every place given to the engine was answered, got holds what came

	// Under the hub's lock.
	busy bool // it was woken, or has places with the engine
	out  int  // places that the engine has not answered
	got  []Given
	gone bool // it has left: what still comes is given back
}

// Given is a lease that the engine made for a long poll in the transaction that scheduled the task. Input nil = it is in the history.
type Given struct {
	Lease store.Leased
	Input []byte
}

func newHub() *hub { return &hub{lines: map[store.QueueAt]*line{}, seats: map[int64]*poll{}} }

// waits says whether polls are parked for a queue: a new one then takes its place behind them.
func (h *hub) waits(q store.QueueAt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[q]
	return l != nil && len(l.polls) > 0
}

// park puts a poll at the end of the lines of its queues.
func (h *hub) park(p *poll, infos []store.QueueInfo, tags func(store.QueueInfo) []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, info := range infos {
		l := h.lines[info.QueueAt]
		if l == nil {
			l = &line{info: info, tags: tags(info)}
			h.lines[info.QueueAt] = l
		}
		l.polls = append(l.polls, p)
	}
}

// leave takes a poll out of its lines and gives what the engine had delivered to it. A wake-up that it has not used goes to the next one.
func (h *hub) leave(p *poll) []Given {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.gone = true
	got := p.got
	p.got = nil
	for _, q := range p.queues {
		l := h.lines[q]
		if l == nil {
			continue
		}
		l.polls = slices.DeleteFunc(l.polls, func(x *poll) bool { return x == p })
		h.retry(l)
		h.drop(l)
	}
	select {
	case q := <-p.wake:
		h.finished(q, false)
		h.wakeOne(q)
	default:
	}
	return got
}

func (h *hub) drop(l *line) {
	if len(l.polls) == 0 && l.claims == 0 {
		delete(h.lines, l.info.QueueAt)
	}
}

// claimed ends the claim that a wake-up of queue q began. The poll is idle again; full says that there may be more work, blocked that a gate
// held something back.
func (h *hub) claimed(p *poll, q store.QueueAt, full, blocked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.busy = false
	h.finished(q, blocked)
	if full && !blocked {
		h.wakeOne(q)
	}
}

func (h *hub) finished(q store.QueueAt, blocked bool) {
	l := h.lines[q]
	if l == nil {
		return
	}
	l.claims--
	l.blocked = blocked
	h.retry(l)
	h.drop(l)
}

// retry wakes somebody for what was announced while nobody could be woken.
func (h *hub) retry(l *line) {
	if l.again && !l.blocked {
		l.again = false
		h.wakeLocked(l)
	}
}

// ready says that n tasks became ready, and gives how many of them polls of this process were woken for.
func (h *hub) ready(q store.QueueAt, n int) (taken int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[q]
	if l == nil || l.blocked {
		return 0
	}
	for taken < n {
		want := h.wakeLocked(l)
		if want == 0 {
			break
		}
		taken += want
	}
	return taken
}

// freed wakes one poll of each blocked line that passes one of the gates.
func (h *hub) freed(tags []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if l.info.Gated || l.blocked {
			if slices.ContainsFunc(tags, func(t string) bool { return slices.Contains(l.tags, t) }) {
				l.blocked = false
				h.wakeLocked(l)
			}
		}
	}
}

// look wakes one poll of a queue that was seen to hold work, blocked or not.
func (h *hub) look(q store.QueueAt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[q]; l != nil {
		l.blocked = false
		h.wakeLocked(l)
	}
}

func (h *hub) wakeOne(q store.QueueAt) {
	if l := h.lines[q]; l != nil {
		h.wakeLocked(l)
	}
}

// wakeLocked wakes the first idle poll of a line and gives how many tasks it wants; 0 = nobody was woken.
func (h *hub) wakeLocked(l *line) int {
	allowed := claimsAtOnce
	if l.info.Gated {
		allowed = 1
	}
	if l.claims >= allowed {
		l.again = true
		return 0
	}
	for _, p := range l.polls {
		if p.busy {
			continue
		}
		p.busy = true
		l.claims++
		p.wake <- l.info.QueueAt // one slot, and only an idle poll is woken
		return max(1, p.want[l.info.QueueAt])
	}
	l.again = len(l.polls) > 0
	return 0
}

// waiting gives the queues that polls wait for, and whether any is blocked.
func (h *hub) waiting() (queues []store.QueueAt, blocked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for q, l := range h.lines {
		if len(l.polls) > 0 {
			queues = append(queues, q)
			blocked = blocked || l.blocked
		}
	}
	return queues, blocked
}

// reserve gives up to n places of parked polls of a queue to the engine (S2, next work, eager).
func (h *hub) reserve(q store.QueueAt, n int) (seats []store.Seat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[q]
	if l == nil || l.blocked || l.info.Gated {
		return nil
	}
	for _, p := range l.polls {
		if len(seats) >= n {
			break
		}
		if p.busy || h.seats[p.claimID] != nil {
			continue
		}
		k := min(max(1, p.want[q]), n-len(seats))
		p.busy, p.out = true, k
		h.seats[p.claimID] = p
		for range k {
			seats = append(seats, store.Seat{ClaimID: p.claimID, LeaseMs: p.leaseMs, Worker: p.worker})
		}
	}
	return seats
}

// deliver hands a lease to the poll that gave the place. False: the poll has left, and the lease must be given back.
func (h *hub) deliver(seat store.Seat, g Given) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.seats[seat.ClaimID]
	if p == nil {
		return false
	}
	taken := !p.gone
	if taken {
		p.got = append(p.got, g)
	}
	h.answered(p)
	return taken
}

// giveUp takes an unused place back.
func (h *hub) giveUp(q store.QueueAt, seat store.Seat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.seats[seat.ClaimID]
	if p == nil {
		return
	}
	h.answered(p)
	if l := h.lines[q]; l != nil && !p.busy {
		h.retry(l)
	}
}

func (h *hub) answered(p *poll) {
	if p.out--; p.out > 0 {
		return
	}
	delete(h.seats, p.claimID)
	if len(p.got) == 0 {
		p.busy = false
		return
	}
	if !p.gone {
		p.filled <- struct{}{} // one slot, and the poll takes it before it parks again
	}
}

// take gives what the engine has delivered to a poll.
func (h *hub) take(p *poll) []Given {
	h.mu.Lock()
	defer h.mu.Unlock()
	got := p.got
	p.got, p.busy = nil, false
	return got
}

// parked counts the polls in the lines, each once.
func (h *hub) parked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[*poll]bool{}
	for _, l := range h.lines {
		for _, p := range l.polls {
			all[p] = true
		}
	}
	return len(all)
}
