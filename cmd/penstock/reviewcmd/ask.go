package reviewcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

// answers are the lines that a person types.
type answers struct{ lines chan string }

// read begins to read answers. The goroutine may stay in its last read, which nothing can
// end; the process ends then.
func read(ctx context.Context, in io.Reader) answers {
	a := answers{make(chan string)}
	go func() {
		defer close(a.lines)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			select {
			case a.lines <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return a
}

// next is the next line; io.EOF after the last.
func (a answers) next(ctx context.Context) (string, error) {
	select {
	case line, ok := <-a.lines:
		if !ok {
			return "", io.EOF
		}
		return strings.TrimSpace(line), nil
	case <-ctx.Done():
		return "", cli.Fail(cli.ExitInterrupted, "", "")
	}
}

const question = "a: accept, w: apply to the work tree, b: make a branch, p: open a pull request, r: reject, d: whole patch, s: skip, q: quit? "

// ask goes through the results.
func (r *reviewer) ask(ctx context.Context, list []jobs.Record) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	typed := read(ctx, r.shell.In)
	for i, rec := range list {
		now, err := r.pool.Client.Get(ctx, rec.ID)
		if errors.Is(err, jobs.ErrNotFound) || err == nil && now.Reviewed() != jobs.Unreviewed {
			continue // another person was faster
		}
		if err == nil {
			err = r.show(ctx, now, fmt.Sprintf("%d of %d", i+1, len(list)))
		}
		if err == nil {
			err = r.about(ctx, now, typed)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// about asks what is to become of one result, until that is done. io.EOF ends the review.
func (r *reviewer) about(ctx context.Context, rec jobs.Record, typed answers) error {
	for {
		r.shell.Out.Printf(question)
		word, err := typed.next(ctx)
		if err != nil {
			r.shell.Out.Printf("\n")
			return err
		}
		switch strings.ToLower(word) {
		case "a":
			rec, err = r.accept(ctx, rec, "")
		case "w":
			rec, err = r.accept(ctx, rec, toWorkTree)
		case "b":
			rec, err = r.accept(ctx, rec, toBranch)
		case "p":
			rec, err = r.accept(ctx, rec, toPull)
		case "r":
			r.shell.Out.Printf("what is the agent to change? (an empty line only rejects) ")
			comment, failed := typed.next(ctx)
			if failed != nil {
				return failed // nothing was decided
			}
			rec, err = r.reject(ctx, rec, comment)
		case "d":
			if err := r.patch(ctx, rec, 0); err != nil {
				return err
			}
			continue
		case "s":
			return nil
		case "q":
			return io.EOF
		default:
			continue
		}
		if err != nil {
			return err // conflicts and the like are the user's next task
		}
		r.shell.Out.Printf("%s\n", said(rec))
		return nil
	}
}

func said(rec jobs.Record) string {
	if state := rec.Reviewed(); state != "" {
		return string(state)
	}
	return "rejected; the agent goes on"
}
