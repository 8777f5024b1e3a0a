// Package watch says that something happened in some folders. It says no more, and it may miss things: a look at the source tells what is so.
//
// Kinds of events are not told apart, names are not kept: each swap, save or checkout comes as other events on other systems, and none of them can be
// trusted to come. Folders are watched, never files: a file that is replaced takes its watch with it.
package watch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Hint says that it is worth looking.
type Hint struct {
	// Overflow says that events were lost.
	Overflow bool
}

// Watcher watches a set of folders. Safe for concurrent use.
type Watcher struct {
	hints chan Hint
	done  sync.WaitGroup

	mu     sync.Mutex
	notify *fsnotify.Watcher
	seen   map[string]os.FileInfo // watched folders, as they were when their watch was made
}

// ErrLimit says that the system has no more watches to give.
var ErrLimit = errors.New("the limit of watches is reached")

// Open makes a watcher of no folder. Close ends it. The error is ErrLimit where the system gives no more of them.
func Open() (*Watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, explain(err)
	}
	w := &Watcher{hints: make(chan Hint, 1), notify: notify, seen: map[string]os.FileInfo{}}
	w.done.Go(func() { w.listen(notify.Events, notify.Errors) })
	return w, nil
}

// Close ends the watcher. Hints stays open and gives nothing more.
func (w *Watcher) Close() error {
	err := w.notify.Close()
	w.done.Wait()
	return err
}

// Hints gives a hint after something happened. Hints that nobody took yet are one.
func (w *Watcher) Hints() <-chan Hint { return w.hints }

// listen turns events of any kind into hints. An error is one too: whatever it was, something may have been missed.
func (w *Watcher) listen(events <-chan fsnotify.Event, errs <-chan error) {
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
			w.hint(Hint{})
		case _, ok := <-errs:
			if !ok {
				return
			}
			w.hint(Hint{Overflow: true})
		}
	}
}

// hint leaves a hint; one that waits there already takes the new one in.
func (w *Watcher) hint(h Hint) {
	for {
		select {
		case w.hints <- h:
			return
		default:
		}
		select {
		case before := <-w.hints:
			h.Overflow = h.Overflow || before.Overflow
		default:
		}
	}
}

// Set makes the watched folders those given. Folders that were replaced since are watched anew; those that are gone are left out. A folder that cannot be
// watched does not keep others from it: the errors come joined, ErrLimit among them where the system gives no more watches. fresh says that a watch was
// made: what happened in its folder before was not seen.
func (w *Watcher) Set(folders []string) (fresh bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	live := w.notify.WatchList()
	slices.Sort(live)
	wanted := make(map[string]bool, len(folders))
	for _, path := range folders {
		wanted[path] = true
	}
	for path := range w.seen {
		if !wanted[path] {
			w.drop(path)
		}
	}
	var faults []error
	for _, path := range folders {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			w.drop(path)
			continue
		}
		_, alive := slices.BinarySearch(live, path)
		if before := w.seen[path]; before != nil && alive && os.SameFile(before, info) {
			continue
		}
		w.drop(path)
		if err := w.notify.Add(path); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err = explain(err); errors.Is(err, ErrLimit) {
				return fresh, errors.Join(append(faults, err)...) // the others would fare no better
			}
			faults = append(faults, err)
			continue
		}
		w.seen[path], fresh = info, true
	}
	return fresh, errors.Join(faults...)
}

func (w *Watcher) drop(path string) {
	if _, watched := w.seen[path]; watched {
		delete(w.seen, path)
		_ = w.notify.Remove(path) // gone with its folder
	}
}

// Count is how many folders are watched.
func (w *Watcher) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w (fs.inotify.max_user_watches): %w", ErrLimit, err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w (fs.inotify.max_user_instances, or open files): %w", ErrLimit, err)
	}
	return fmt.Errorf("watching: %w", err)
}
