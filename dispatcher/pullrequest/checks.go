package pullrequest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/jobs"
)

// showChecks shows beside the commit that an attempt has delivered what its checks have found,
// for the forge's own rules about what may be merged. The text is about them. Where the forge does not take that, the
// message says so.
func (l *line) showChecks(ctx context.Context, rec jobs.Record, res jobs.Result, text string) (message string, err error) {
	if len(res.Checks) == 0 {
		return "", nil
	}
	delivered, err := l.of.cfg.Store.Deliveries(ctx, rec.ID)
	commit := delivered[rec.Epoch].Commit
	if err != nil || commit == "" {
		return "", err
	}
	repo, _ := l.forge.Repository(rec.Repo)
	failed := slices.DeleteFunc(slices.Clone(res.Checks), func(c jobs.Check) bool { return c.Exit == 0 })
	return accepted("without its checks", l.forge.Check(ctx, forge.Check{
		Repo: repo, Commit: commit, ID: fmt.Sprintf("%s/%d", rec.ID, rec.Epoch), Passed: len(failed) == 0,
		Summary: fmt.Sprintf("%d of %d checks passed in the pool", len(res.Checks)-len(failed), len(res.Checks)),
		Text:    strings.TrimSpace(text), Page: l.of.sessionPage(rec.ID),
	}))
}
