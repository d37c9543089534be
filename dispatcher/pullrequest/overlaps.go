package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
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

// writeOverlaps writes which pull requests that the pool has opened in the repository change
// the same files. People may have merged or closed them since: the pool does not look.
func (l *line) writeOverlaps(ctx context.Context, b *strings.Builder, rec jobs.Record, res jobs.Result) error {
	repo, _ := l.forge.Repository(rec.Repo)
	others := slices.DeleteFunc(l.lastOpened(repo), func(id string) bool { return id == rec.ID })
	if len(others) == 0 {
		return nil
	}
	own, err := l.of.changes(ctx, rec)
	if err != nil {
		return err
	}
	var found []string
	for _, id := range others {
		overlap, err := l.overlap(ctx, id, own, res.BaseCommit)
		if err != nil {
			return err
		}
		if overlap != "" {
			found = append(found, overlap)
		}
	}
	if len(found) == 0 {
		return nil
	}
	b.WriteString("\n### Overlaps\n\nThe pool has opened other pull requests that change the same files:\n\n")
	for _, overlap := range found[:min(len(found), maxOverlaps)] {
		b.WriteString(overlap)
	}
	if more := len(found) - maxOverlaps; more > 0 {
		fmt.Fprintf(b, "- and %d more\n", more)
	}
	return nil
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
	note += ": " + files(common.Files)
	switch {
	case base != res.BaseCommit:
		note += "; it was made from another commit, so lines are not compared"
	case len(common.Conflicts) > 0:
		note += "; the same lines, or lines beside them, of " + files(common.Conflicts)
	default:
		note += "; other lines"
	}
	return note + "\n", nil
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

// files names some files, which strangers have named.
func files(paths []string) string {
	var names []string
	for _, path := range paths[:min(len(paths), maxOverlapping)] {
		names = append(names, cell(path))
	}
	if more := len(paths) - maxOverlapping; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
