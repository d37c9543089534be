package reviewcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// Lines that are shown before a person asks for all.
const (
	patchLines  = 120
	outputLines = 10 // of each check, the last ones
)

// show shows a result: what it is of, what it cost, its checks and its patch.
func (r *reviewer) show(ctx context.Context, rec jobs.Record, place string) error {
	out := r.shell.Out
	result, err := r.pool.Client.Result(ctx, rec.ID)
	if err != nil {
		return err
	}
	spans := []console.Span{{Style: console.Bold, Text: place + "  " + cmp.Or(rec.Title, rec.Item)}}
	if err := out.Row(spans...); err != nil {
		return err
	}
	what := summary.Join("job "+rec.ID, rec.Agent, string(rec.Outcome), string(rec.Reason), fmt.Sprintf("$%.2f", result.CostUSD), summary.Took(result.Durations.Total))
	if err := out.Row(console.Span{Style: console.Dim, Text: what}); err != nil {
		return err
	}
	if err := r.checks(ctx, rec); err != nil {
		return err
	}
	return r.patch(ctx, rec, patchLines)
}

// checks shows how the commands of the last attempt's checks ended, and the end of what they printed.
func (r *reviewer) checks(ctx context.Context, rec jobs.Record) error {
	var ended []event.CheckEnded
	attempt := 0
	for e, err := range r.pool.Client.Events(ctx, rec.ID, 0) {
		if err != nil {
			return err
		}
		if e.Kind != jobs.CheckEnded || e.Job != rec.ID {
			continue
		}
		if e.Attempt != attempt {
			attempt, ended = e.Attempt, nil
		}
		ended = append(ended, event.As[event.CheckEnded](e))
	}
	for _, check := range ended {
		style := console.Green
		if check.Exit != 0 {
			style = console.Red
		}
		err := r.shell.Out.Row(console.Span{Style: style, Text: fmt.Sprintf("exit %d  ", check.Exit)}, console.Span{Text: check.Command + "  " + summary.Join(summary.Tests(check.Tests), summary.Took(check.Seconds))})
		if err != nil {
			return err
		}
		for _, line := range summary.TestLines(check.Tests) {
			if err := r.shell.Out.Row(console.Span{Text: "  " + line}); err != nil {
				return err
			}
		}
		lines := visible.Block(strings.TrimRight(check.Output, "\n"))
		for _, line := range lines[max(0, len(lines)-outputLines):] {
			if err := r.shell.Out.Row(console.Span{Style: console.Dim, Text: "  " + line}); err != nil {
				return err
			}
		}
	}
	return nil
}

// patch shows the patch, up to so many lines; 0: all of it.
func (r *reviewer) patch(ctx context.Context, rec jobs.Record, most int) error {
	var text bytes.Buffer
	if err := patches.Write(ctx, r.pool, rec, &text); err != nil {
		return err
	}
	stat, err := patchstat.Read(bytes.NewReader(text.Bytes()))
	if err != nil {
		return err
	}
	for _, f := range stat.Files {
		if why := patchstat.RunsCode(f); why != "" {
			err = r.shell.Out.Row(console.Span{Style: console.Alert, Text: "may run code: " + f.Path + " (" + why + ")"})
		}
		if err != nil {
			return err
		}
	}
	if most == 0 { // whatever its lines are like
		if _, err := r.shell.Out.Write(text.Bytes()); err != nil {
			return err
		}
	} else if err := r.head(text.String(), most); err != nil {
		return err
	}
	r.shell.Out.Printf("%d files, +%d −%d lines\n", len(stat.Files)+stat.More, stat.Added, stat.Removed)
	return nil
}

// head shows the first lines of a patch. That a program writes colours is a part of its change.
func (r *reviewer) head(patch string, most int) error {
	lines := strings.Split(strings.TrimSuffix(patch, "\n"), "\n")
	for _, line := range lines[:min(len(lines), most)] {
		text := strings.ReplaceAll(visible.Document(line), "\t", "    ")
		if err := r.shell.Out.Row(console.Span{Style: style(line), Text: text}); err != nil {
			return err
		}
	}
	if more := len(lines) - most; more > 0 {
		r.shell.Out.Printf("and %d more lines; d shows all\n", more)
	}
	return nil
}

func style(line string) console.Style {
	switch {
	case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
		return console.Bold
	case strings.HasPrefix(line, "@@"):
		return console.Cyan
	case strings.HasPrefix(line, "+"):
		return console.Green
	case strings.HasPrefix(line, "-"):
		return console.Red
	}
	return console.Plain
}
