package results

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/report"
)

// summary is what all reports are written from. The patches stay on disk.
type summary struct {
	Manifest
	Report *report.Report
	Rows   []row
}

// row is one item. Result is nil while it is missing.
type row struct {
	Item
	Result *jobs.Result
	Stat   patchstat.Stat
	Note   string // why the patch could not be read
	Best   bool   // of several tries of an item
}

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
	build := report.New(report.Report{
		Batch: s.ID, State: string(s.State), Why: s.Why, Started: s.Started, WallSeconds: s.Totals.WallSeconds, Bases: s.baseLines(results),
		LimitUSD: s.LimitUSD, LimitTokens: s.LimitTokens,
	})
	for _, item := range s.Items {
		one := row{Item: item}
		if result, ok := results[item.ID]; ok {
			one.Result = &result
			if one.Stat, err = r.stat(item.ID); err != nil {
				one.Note = err.Error()
			}
			entry := report.Of(item.Title, result, &one.Stat)
			entry.Of, entry.Agent, entry.Try = item.Of, item.Agent, item.Try
			build.Add(entry)
		} else {
			build.Add(report.Entry{Item: item.row()})
		}
		s.Rows = append(s.Rows, one)
	}
	s.Report = build.Report()
	for i, r := range s.Report.Rows {
		s.Rows[i].Best = r.Best
	}
	return s, nil
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

// directory says what only a results directory knows of a batch.
func (s *summary) directory() *report.Directory {
	return &report.Directory{
		Input:   fmt.Sprintf("%s, %s, sha256 `%.12s`", report.Cell(s.Input.Name, 200), report.Cell(s.Input.Format, 20), s.Input.SHA256),
		Version: s.Version, Patch: patchName, Log: logName,
	}
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

// Data is the report of the directory for programs, and for other ways to show it.
func (d *Dir) Data() (*report.Report, error) {
	s, err := reporter{d}.summarise()
	if err != nil {
		return nil, err
	}
	return s.Report, nil
}

func (r reporter) render(w io.Writer, s *summary, format string) error {
	switch format {
	case "md":
		return s.Report.Markdown(w, s.directory())
	case "html":
		return r.html(w, s)
	case "junit":
		return s.junit(w)
	case "csv":
		return s.csv(w)
	}
	return fmt.Errorf("report format %q is not known; use md, html, junit or csv", format)
}
