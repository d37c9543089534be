// Package transcript shows the events of a session on a page: what was said, thought and
// done, in the order of the log.
//
//	events ─▶ items, each with the look of its kind ─▶ HTML, escaped by html/template
//
// Everything that an agent, a program or a person wrote is text: it is made visible as on
// a terminal, bounded, and escaped. No part of it becomes an element, an attribute or a
// link. The package does no I/O: the same events are always the same page.
package transcript

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"slices"
	"sync"

	"github.com/penstock-run/penstock/jobs"
)

//go:embed templates
var files embed.FS

var templates = sync.OnceValue(func() *template.Template { return template.Must(template.ParseFS(files, "templates/*.html")) })

// Options say what a page is for.
type Options struct {
	Base   string // the address of the job's page
	Answer bool   // who looks may answer questions
	// Most bounds the bytes of a window. The newest events are those that it has.
	Most int
}

// A Window is a part of a session on a page.
type Window struct {
	HTML  template.HTML
	First uint64 // the number of the first event that it covers; 0: it covers none
	Last  uint64
}

// Shown reports whether events of a kind stand on the page. The others are details, or
// the agent's own protocol, and only among the raw events.
func Shown(kind jobs.Kind) bool { return lookOf(kind) != rawOnly }

// Render shows events, which are those of a session from some number on.
func Render(events []jobs.Event, o Options) (Window, error) {
	if len(events) == 0 {
		return Window{}, nil
	}
	html, first, err := render(events, o)
	if err != nil {
		return Window{}, err
	}
	if first > events[0].Seq { // what belongs to older ones now stands for itself
		at := slices.IndexFunc(events, func(e jobs.Event) bool { return e.Seq >= first })
		if html, _, err = render(events[at:], Options{Base: o.Base, Answer: o.Answer}); err != nil {
			return Window{}, err
		}
	}
	return Window{HTML: html, First: first, Last: events[len(events)-1].Seq}, nil
}

// render shows as many of the newest events as fit, and returns the number of the first.
func render(events []jobs.Event, o Options) (template.HTML, uint64, error) {
	items := group(events, o)
	parts, size, first := make([][]byte, 0, len(items)), 0, events[0].Seq
	for i, it := range slices.Backward(items) {
		part, err := it.html()
		if err != nil {
			return "", 0, err
		}
		if size += len(part); o.Most > 0 && size > o.Most && i < len(items)-1 {
			first = items[i+1].Seq
			break
		}
		parts = append(parts, part)
	}
	slices.Reverse(parts)
	return template.HTML(bytes.Join(parts, nil)), first, nil //nolint:gosec // made by templates, which escape
}

// group makes the items of a page: what came of a tool is put into its call, and
// questions that are over have no form.
func group(events []jobs.Event, o Options) []*item {
	var items []*item
	calls, asks := map[string]*item{}, map[string]*item{}
	for _, e := range events {
		it := newItem(e, o)
		if it == nil {
			continue
		}
		if it.Closes == closesAll {
			for id := range asks {
				asks[id].Ask.Open = false
			}
		} else if asked := asks[it.Closes]; asked != nil {
			asked.Ask.Open = false
		}
		if it.Ask != nil {
			asks[it.ID] = it
		}
		if call := calls[it.Into]; call != nil {
			call.Inner = append(call.Inner, it)
			if it.Outcome != "" {
				call.Outcome, call.Failed = it.Outcome, it.Failed
			}
			continue
		}
		if it.Look == tool && it.ID != "" {
			calls[it.ID] = it
		}
		items = append(items, it)
	}
	return items
}

// Fragment shows one event that has come, for a page that has those before it; nothing,
// if its kind is not shown. Where it goes, and what it ends, its attributes say.
func Fragment(e jobs.Event, o Options) ([]byte, error) {
	it := newItem(e, o)
	if it == nil {
		return nil, nil
	}
	return it.html()
}

func (it *item) html() ([]byte, error) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "item", it); err != nil {
		return nil, fmt.Errorf("event %d: %w", it.Seq, err)
	}
	return b.Bytes(), nil
}
