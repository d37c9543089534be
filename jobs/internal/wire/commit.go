package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
)

// Writes of one process to one stream that come at the same time are committed
// together. The broker writes a batch to the disk once, but a batch has a fixed
// cost, of about fourteen single writes, and under load of twice as many (nats-server
// 2.15.2). So no write waits for others to come: as long as the broker keeps up, each write
// is sent by itself, and what had to wait meanwhile is one batch.
const (
	singlesAtOnce = 48       // so many writes of one stream are sent by themselves
	groupLeast    = 48       // fewer that wait are sent by themselves, too
	groupMost     = MaxBatch // the broker allows a thousand
	groupBytes    = 1 << 20  // of all messages of a batch; a larger message is sent by itself
)

// errAlone says that a batch was not stored, perhaps because of another one's message.
var errAlone = errors.New("the batch was not stored")

// A committer sends the writes of a process to one stream.
type committer struct {
	c *Conn

	mu      sync.Mutex
	singles int  // writes on their way by themselves
	batch   bool // one is on its way
	never   bool // the stream takes no batches
	waiting []*write
}

// A write is a message that waits to be sent.
type write struct {
	msg   *nats.Msg
	told  chan order // has room for the one
	group []*write   // that it is to be sent with, by it; nil: alone
}

// An order tells a write that waits to be sent, or what became of it.
type order struct {
	done bool // it has been sent, with this result:
	seq  uint64
	err  error
}

// committers are those of a connection.
type committers struct {
	mu sync.Mutex
	of map[string]*committer // by stream
}

// to returns the committer of a stream.
func (s *committers) to(c *Conn, stream string) *committer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[stream] == nil {
		s.of[stream] = &committer{c: c}
	}
	return s.of[stream]
}

// put stores a message, alone or with others, and returns its sequence. While it waits for
// its turn it may be given up, and is not stored then.
func (k *committer) put(ctx context.Context, msg *nats.Msg) (uint64, error) {
	w := &write{msg: msg, told: make(chan order, 1)}
	if !k.enter(w) {
		var o order
		select {
		case o = <-w.told:
		case <-ctx.Done():
			if k.giveUp(w) {
				return 0, fmt.Errorf("%w: %w", jobs.ErrUnavailable, ctx.Err())
			}
			o = <-w.told
		}
		if o.done {
			return o.seq, o.err
		}
		if w.group != nil {
			return k.putGroup(ctx, w)
		}
	}
	defer k.leave(func() { k.singles-- })
	return k.c.publish(ctx, msg)
}

// enter reports whether a write may be sent at once, by itself. Otherwise it waits.
func (k *committer) enter(w *write) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.batch && len(k.waiting) == 0 && k.singles < singlesAtOnce {
		k.singles++
		return true
	}
	k.waiting = append(k.waiting, w)
	return false
}

// giveUp reports whether a write was still waiting, and now is not.
func (k *committer) giveUp(w *write) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.waiting)
	k.waiting = slices.DeleteFunc(k.waiting, func(o *write) bool { return o == w })
	return len(k.waiting) < n
}

// leave notes what has been answered, and lets those go on that wait.
func (k *committer) leave(note func()) {
	for _, w := range k.released(note) {
		w.told <- order{}
	}
}

// released returns those that may go on. The first of a group sends it.
func (k *committer) released(note func()) []*write {
	k.mu.Lock()
	defer k.mu.Unlock()
	note()
	if k.batch {
		return nil
	}
	if group := k.gather(); len(group) >= groupLeast {
		k.batch = true
		k.drop(group)
		group[0].group = group
		return group[:1]
	}
	n := min(len(k.waiting), max(0, singlesAtOnce-k.singles))
	alone := slices.Clone(k.waiting[:n])
	k.singles, k.waiting = k.singles+n, k.waiting[n:]
	return alone
}

// gather returns what could be sent as one batch. The caller holds mu.
func (k *committer) gather() []*write {
	if k.never || len(k.waiting) < groupLeast {
		return nil
	}
	var group []*write
	size, subjects := 0, map[string]bool{}
	for _, w := range k.waiting {
		size += w.msg.Size()
		if len(group) == groupMost || size > groupBytes {
			break
		}
		// Of two writes of a subject one fails, and would take the whole batch with it.
		if !subjects[w.msg.Subject] {
			subjects[w.msg.Subject] = true
			group = append(group, w)
		}
	}
	return group
}

// drop removes a group from those that wait. The caller holds mu.
func (k *committer) drop(group []*write) {
	sent := make(map[*write]bool, len(group))
	for _, w := range group {
		sent[w] = true
	}
	k.waiting = slices.DeleteFunc(k.waiting, func(w *write) bool { return sent[w] })
}

// putGroup sends a batch, tells the others what became of their writes, and returns
// what became of its own.
func (k *committer) putGroup(ctx context.Context, own *write) (uint64, error) {
	group := own.group
	all := make([]*nats.Msg, len(group))
	for i, w := range group {
		// A copy: it may have to be sent again, alone.
		all[i] = &nats.Msg{Subject: w.msg.Subject, Data: w.msg.Data, Header: maps.Clone(w.msg.Header)}
	}
	// It is for all of them, whatever becomes of the one that sends it.
	last, err := publishBatch(context.WithoutCancel(ctx), k.c, all)
	disabled := isDisabled(err)
	k.leave(func() {
		k.batch = false
		k.never = k.never || disabled
	})
	if err != nil && !unanswered(err) {
		err = errAlone
	}
	var mine order
	for i, w := range group {
		o := order{done: true, err: err}
		if err == nil {
			o.seq = last - uint64(len(group)-1-i)
		}
		if w == own {
			mine = o
			continue
		}
		w.told <- o
	}
	return mine.seq, mine.err
}
