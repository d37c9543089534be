package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// fewMessages is how many sequences are read one by one at most. A batch costs the broker a count
// of what is left, for which it looks at every subject of a bucket: with tens of thousands of
// records that takes longer than all else that it does for a job.
const fewMessages = 64

// few returns the messages with sequences up to upTo, the last that the broker has announced, if
// they are so few that each sequence is asked for by itself, all of them at the same time. Where
// not all of the stream is wanted, that is one. Not ok: they are to be read otherwise.
//
// Each answer is the next message from a sequence on. It is conclusive: a server that has that
// one has all that were stored before and are still there. What it does not show was replaced by
// a later message, which is announced by itself. A server that has none from a sequence on may
// lag behind, and then none of the answers count.
func (r reader) few(ctx context.Context, upTo uint64) (messages []Message, ok bool) {
	from := max(r.From, 1)
	if from > upTo || upTo-from >= fewMessages || upTo > from && r.Subject != ">" {
		return nil, false
	}
	answers, inbox := make(chan *nats.Msg, upTo-from+1), r.c.NC.NewInbox()
	sub, err := r.c.NC.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return nil, false
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	verb := r.c.API("DIRECT.GET." + r.Stream)
	ctx, done := r.c.refused.watch(ctx, verb)
	defer done()
	for seq := from; seq <= upTo; seq++ {
		body, err := json.Marshal(map[string]any{"seq": seq, "next_by_subj": r.Subject})
		if err != nil || r.c.NC.PublishRequest(verb, inbox+"."+strconv.FormatUint(seq, 10), body) != nil {
			return nil, false
		}
	}
	late := time.NewTimer(Patience)
	defer late.Stop()
	for range cap(answers) {
		select {
		case msg := <-answers:
			m, ok := conclusive(msg)
			if !ok {
				return nil, false
			}
			messages = append(messages, m)
		case <-late.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
	slices.SortFunc(messages, func(a, b Message) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(messages, func(a, b Message) bool { return a.Seq == b.Seq }), true
}

// conclusive reads an answer that must be a message from the sequence on that its subject ends with.
func conclusive(msg *nats.Msg) (Message, bool) {
	if msg == nil || msg.Header.Get("Status") != "" {
		return Message{}, false
	}
	asked, err := strconv.ParseUint(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], 10, 64)
	if err != nil {
		return Message{}, false
	}
	m, err := stored(msg)
	return m, err == nil && m.Seq >= asked
}
