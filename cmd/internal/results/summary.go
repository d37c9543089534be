package results

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/patchstat"
	"github.com/penstock-run/penstock/jobs"
)

// summary is what all reports are written from. The patches stay on disk.
type summary struct {
	Manifest
	BaseLines []string
	Rows      []row
	Outcomes  []tally
	Reasons   []tally
	Stages    []stage
	Added     int
	Removed   int
	Empty     int // results without a change

	Files     []patchstat.Shared
	MoreFiles int
	Pairs     []patchstat.Pair
	MorePairs int
	Runs      []flagged
}

// row is one item. Result is nil while it is missing.
type row struct {
	Item
	Result *jobs.Result
	Stat   patchstat.Stat
	Note   string // why the patch could not be read
}

// tally is how often something came up. Advice is for reasons.
type tally struct {
	Name   string
	Count  int
	Advice string
}

// stage is how long a part of the way took, in seconds.
type stage struct {
	Name          string
	P50, P90, Max float64
}

// flagged is a changed file that may run code where the patch is applied.
type flagged struct {
	Item, Path, Why string
}

var outcomeOrder = []jobs.Outcome{jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip}

// A reporter writes what is made from the results of a directory: reports for
// people, and predictions for evaluation tools.
type reporter struct{ dir *Dir }

func (r reporter) summarise() (*summary, error) {
	s := &summary{Manifest: r.dir.Manifest()}
	var err error
	if s.Totals, err = r.dir.Totals(); err != nil {
		return nil, err
	}
	if r.dir.held == nil {
		s.Totals.WallSeconds = s.Manifest.Totals.WallSeconds
	}
	results := make(map[string]jobs.Result, s.Totals.Done)
	for result, err := range r.dir.Results() {
		if err != nil {
			return nil, err
		}
		results[result.ID] = result
	}
	var over patchstat.Overlaps
	for _, item := range s.Items {
		one := row{Item: item}
		if result, ok := results[item.ID]; ok {
			one.Result = &result
			if one.Stat, err = r.stat(item.ID); err != nil {
				one.Note = err.Error()
			}
			over.Add(item.ID, result.BaseCommit, one.Stat)
			s.addRow(one)
		}
		s.Rows = append(s.Rows, one)
	}
	s.Files, s.MoreFiles = over.Files()
	s.Pairs, s.MorePairs = over.Pairs()
	s.BaseLines = s.baseLines(results)
	s.tallies()
	s.Stages = stages(results)
	return s, nil
}

func (s *summary) addRow(r row) {
	s.Added += r.Stat.Added
	s.Removed += r.Stat.Removed
	if len(r.Stat.Files) == 0 {
		s.Empty++
	}
	for _, f := range r.Stat.Files {
		if why := patchstat.RunsCode(f); why != "" {
			s.Runs = append(s.Runs, flagged{r.ID, f.Path, why})
		}
	}
}

func (r reporter) stat(item string) (patchstat.Stat, error) {
	f, err := r.dir.files.openRegular(patchName(item))
	if errors.Is(err, fs.ErrNotExist) {
		return patchstat.Stat{}, errors.New("the patch's file is gone")
	}
	if err != nil {
		return patchstat.Stat{}, err
	}
	defer f.Close()
	return patchstat.Read(f)
}

func (s *summary) tallies() {
	seen := maps.Clone(s.Totals.Outcomes)
	for _, o := range outcomeOrder {
		if n := seen[o]; n > 0 {
			s.Outcomes = append(s.Outcomes, tally{Name: string(o), Count: n})
		}
		delete(seen, o)
	}
	other := 0
	for _, n := range seen {
		other += n
	}
	if other > 0 {
		s.Outcomes = append(s.Outcomes, tally{Name: "other", Count: other})
	}
	if s.Totals.Missing > 0 {
		s.Outcomes = append(s.Outcomes, tally{Name: "missing", Count: s.Totals.Missing})
	}
	for reason, n := range s.Totals.Reasons {
		s.Reasons = append(s.Reasons, tally{string(reason), n, jobs.Reasons[reason].Advice})
	}
	slices.SortFunc(s.Reasons, func(a, b tally) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Name, b.Name)
	})
}

func stages(results map[string]jobs.Result) []stage {
	parts := []struct {
		name string
		of   func(jobs.Durations) float64
	}{
		{"queue", func(d jobs.Durations) float64 { return d.Queue }},
		{"provision", func(d jobs.Durations) float64 { return d.Provision }},
		{"jail", func(d jobs.Durations) float64 { return d.Jail }},
		{"agent", func(d jobs.Durations) float64 { return d.Agent }},
		{"check", func(d jobs.Durations) float64 { return d.Check }},
		{"collect", func(d jobs.Durations) float64 { return d.Collect }},
		{"total", func(d jobs.Durations) float64 { return d.Total }},
	}
	var out []stage
	for _, part := range parts {
		var all []float64
		for _, r := range results {
			if v := part.of(r.Durations); v > 0 {
				all = append(all, v)
			}
		}
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		at := func(q float64) float64 { return all[min(int(q*float64(len(all))), len(all)-1)] }
		out = append(out, stage{part.name, at(0.5), at(0.9), all[len(all)-1]})
	}
	return out
}

// rate is the share of the finished items that succeeded.
func (s *summary) rate() string {
	if s.Totals.Done == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(s.Totals.Outcomes[jobs.Success])/float64(s.Totals.Done))
}

// reports writes every report.
func (r reporter) reports() error {
	s, err := r.summarise()
	if err != nil {
		return err
	}
	for _, format := range []string{"md", "html", "junit", "csv"} {
		name := "report." + format
		if format == "junit" {
			name = "report.junit.xml"
		}
		if err := r.dir.files.write(name, func(w io.Writer) error { return r.render(w, s, format) }); err != nil {
			return err
		}
	}
	return nil
}

// Report writes one report: md, html, junit or csv.
func (d *Dir) Report(w io.Writer, format string) error {
	r := reporter{d}
	s, err := r.summarise()
	if err != nil {
		return err
	}
	return r.render(w, s, format)
}

func (r reporter) render(w io.Writer, s *summary, format string) error {
	switch format {
	case "md":
		return s.markdown(w)
	case "html":
		return r.html(w, s)
	case "junit":
		return s.junit(w)
	case "csv":
		return s.csv(w)
	}
	return fmt.Errorf("report format %q is not known; use md, html, junit or csv", format)
}
