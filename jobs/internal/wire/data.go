package wire

import (
	"context"
	"iter"
	"sync"
)

// dataMessages bounds one batch of data, beside batchBytes: many more messages than with their
// headers, since each batch costs the broker a count of what is left.
const dataMessages = 4096

// Data is [Conn.Scan] for a caller that wants only the data of messages: the other fields need not
// be set. Subjects, sequences, times and headers cost the broker and this process more
// than the data of a small message. While the caller works, the next batch is read.
func (r Range) Data(ctx context.Context, c *Conn) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var ahead sync.WaitGroup
		defer ahead.Wait()
		defer cancel()
		batches := make(chan answer)
		var failed error // written before batches is closed
		ahead.Go(func() {
			defer close(batches)
			failed = reader{c: c, Range: r, plain: true}.each(ctx, batches)
		})
		for got := range batches {
			for _, m := range got.messages {
				if !yield(m, nil) {
					return
				}
			}
		}
		if failed != nil {
			yield(Message{}, failed)
		}
	}
}

// each sends what is stored now, batch after batch. The first one is small, since most ranges are.
func (r reader) each(ctx context.Context, batches chan<- answer) error {
	var got answer
	for most := batchMessages; ; most = dataMessages {
		var err error
		if got.over {
			got = answer{}
		} else if got, err = r.patientBatch(ctx, most); err != nil {
			return err
		}
		if len(got.messages) == 0 {
			if got.messages, err = r.rest(ctx); err != nil || len(got.messages) == 0 {
				return err
			}
			got.last, got.over = got.messages[0].Seq, false // the server that was asked had not come so far
		}
		select {
		case batches <- got:
			r.From = got.last + 1
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
