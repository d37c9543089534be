package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/patchstat"
)

// How much is compared for one pull request, and told of it.
const (
	maxCompared    = 50      // the last pull requests of the repository
	maxComparedOf  = 4 << 20 // bytes of each patch
	maxOverlaps    = 10      // that are told
	maxOverlapping = 5       // files that are named of each
)

// noteOpened remembers a job whose pull request the pool has opened, as the last one of its
// repository.
func (l *line) noteOpened(rec jobs.Record) {
	repo, _ := l.forge.Repository(rec.Repo)
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.DeleteFunc(l.opened[repo], func(id string) bool { return id == rec.ID })
	l.opened[repo] = append(list[max(0, len(list)+1-maxCompared):], rec.ID)
}

// lastOpened returns the jobs with the last pull requests of a repository, the newest first.
func (l *line) lastOpened(repo string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.opened[repo])
	slices.Reverse(list)
	return list
}

// writeOverlaps writes which pull requests that the pool has opened in the repository, and which jobs that
// have not ended, change the same files. People may have merged or closed the pull requests since: the pool
// does not look.
func (l *line) writeOverlaps(ctx context.Context, b *strings.Builder, rec jobs.Record, res jobs.Result) error {
	opened, err := l.overlapping(ctx, rec, res)
	if err != nil {
		return err
	}
	unfinished, err := l.of.unfinished(ctx, rec)
	if err != nil || len(opened)+len(unfinished) == 0 {
		return err
	}
	b.WriteString("\n### Overlaps\n")
	writeNotes(b, "The pool has opened other pull requests that change the same files:", opened)
	writeNotes(b, "Jobs that have not ended change the same files:", unfinished)
	return nil
}

func writeNotes(b *strings.Builder, head string, notes []string) {
	if len(notes) == 0 {
		return
	}
	b.WriteString("\n" + head + "\n\n")
	for _, note := range notes[:min(len(notes), maxOverlaps)] {
		b.WriteString(note)
	}
	if more := len(notes) - maxOverlaps; more > 0 {
		fmt.Fprintf(b, "- and %d more\n", more)
	}
}

// overlapping are notes of the pull requests that change the same files as a job.
func (l *line) overlapping(ctx context.Context, rec jobs.Record, res jobs.Result) (found []string, err error) {
	repo, _ := l.forge.Repository(rec.Repo)
	others := slices.DeleteFunc(l.lastOpened(repo), func(id string) bool { return id == rec.ID })
	if len(others) == 0 {
		return nil, nil
	}
	own, err := l.of.changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	for _, id := range others {
		overlap, err := l.overlap(ctx, id, own, res.BaseCommit)
		if err != nil {
			return nil, err
		}
		if overlap != "" {
			found = append(found, overlap)
		}
	}
	return found, nil
}

// unfinished are notes of the jobs that have not ended and that change the same files as a job, as the pool
// has noted by now.
func (o *Outbox) unfinished(ctx context.Context, rec jobs.Record) (notes []string, err error) {
	found, err := overlap.Of(o.cfg.Queue.Workers()).Found(ctx, rec.ID)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		other, err := o.cfg.Queue.Get(ctx, f.Job)
		switch {
		case errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrPurged):
			continue
		case err != nil:
			return nil, err
		case other.State != jobs.Finished:
			notes = append(notes, "- job "+cell(f.Job)+": "+files(f.Files, f.More)+where(f.Apart, f.Lines)+"\n")
		}
	}
	return notes, nil
}

// where says in which files of those that both change the same lines are changed.
func where(apart bool, lines []string) string {
	switch {
	case apart:
		return "; it was made from another commit, so lines are not compared"
	case len(lines) > 0:
		return "; the same lines, or lines beside them, of " + files(lines, 0)
	}
	return "; other lines"
}

// overlap is what a patch made from a commit has in common with the pull request of another
// job; empty: nothing.
func (l *line) overlap(ctx context.Context, id string, own patchstat.Stat, base string) (string, error) {
	other, err := l.of.cfg.Queue.Get(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrPurged) || err == nil && !isOpen(other) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	other.Epoch = other.PullRequest.Epoch // the attempt that it shows
	changes, err := l.of.changes(ctx, other)
	if err != nil {
		return "", err
	}
	res, err := l.of.cfg.Store.Result(ctx, other)
	if err != nil {
		return "", err
	}
	common, ok := patchstat.Both(patchstat.Patch{Base: base, Stat: own}, patchstat.Patch{Base: res.BaseCommit, Stat: changes})
	if !ok {
		return "", nil
	}
	note := fmt.Sprint("- #", other.PullRequest.Number)
	if isPage(other.PullRequest.URL) {
		note = fmt.Sprintf("- [%d](%s)", other.PullRequest.Number, other.PullRequest.URL)
	}
	return note + ": " + files(common.Files, 0) + where(base != res.BaseCommit, common.Conflicts) + "\n", nil
}

// isOpen reports whether the pool has opened the pull request of a job.
func isOpen(rec jobs.Record) bool {
	return rec.PullRequest != nil && rec.PullRequest.State == jobs.PullOpen
}

// changes reads what the patch of an attempt changes: nothing where there is none.
func (o *Outbox) changes(ctx context.Context, rec jobs.Record) (patchstat.Stat, error) {
	patch, err := o.cfg.Store.Get(ctx, rec.ID, rec.Epoch, jobs.PatchName)
	if errors.Is(err, jobs.ErrNotFound) {
		return patchstat.Stat{}, nil
	}
	if err != nil {
		return patchstat.Stat{}, err
	}
	stat, err := patchstat.Read(io.LimitReader(patch, maxComparedOf))
	return stat, errors.Join(err, patch.Close())
}

// files names some files, which strangers have named, and counts the others.
func files(paths []string, more int) string {
	var names []string
	for _, path := range paths[:min(len(paths), maxOverlapping)] {
		names = append(names, cell(path))
	}
	if more += max(0, len(paths)-maxOverlapping); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
