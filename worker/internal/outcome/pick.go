package outcome

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// pick stores the files of the workspace that the job asks for. If the agent made a
// file unusable, that costs the file and not the result, and an event reports it.
func (o *Outcome) pick(ctx context.Context, space *workspace.Workspace) error {
	if len(o.cfg.Job.Artifacts) == 0 {
		return nil
	}
	at := o.destination()
	var said []string
	n := 0
	left, err := space.Pick(ctx, o.cfg.Job.Artifacts, func(picked workspace.Picked) error {
		n++
		path := o.clean(picked.Path)
		// The path is the agent's, and may be anything; the name is ours.
		file, changed, err := o.keepClean(ctx, at, fmt.Sprintf("file-%d", n), picked.Content)
		if large, ok := errors.AsType[*artifact.TooLargeError](err); ok {
			said = append(said, fmt.Sprintf("%s: has more than the %d bytes that the store takes", path, large.Max))
			return nil
		}
		if err != nil {
			return err
		}
		if changed {
			said = append(said, path+": the value of a secret was removed from it")
		}
		file.Path = path
		o.Result.list(*file)
		return nil
	})
	if said = append(said, left...); len(said) > 0 {
		o.cfg.Tell(event.Make(event.Notice{Text: "files that the job asked for are not kept, or not as they were", Skipped: said}))
	}
	if _, ours := errors.AsType[*verdict.StepError](err); ours {
		return err
	}
	return verdict.Failed(verdict.CollectReason(err), "pick the job's artifacts", err)
}

// keepClean stores content without the values of secrets, and reports whether it had
// any.
func (o *Outcome) keepClean(ctx context.Context, at destination, name string, content io.Reader) (file *jobs.Artifact, changed bool, err error) {
	out, in := io.Pipe()
	was := sha256.New()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := o.cfg.Secrets.Writer(in)
		_, err := io.Copy(w, io.TeeReader(content, was))
		if err == nil {
			err = w.Close()
		}
		in.CloseWithError(err)
	}()
	file, err = at.put(ctx, name, out)
	out.Close()
	<-done
	return file, err == nil && hex.EncodeToString(was.Sum(nil)) != file.SHA256, err
}
