package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/penstock-run/penstock/jobs"
)

// prepared is what Options become once they were checked.
type prepared struct {
	opts      Options
	defaults  json.RawMessage
	prompt    *template.Template // nil: as the item says
	selection selection
}

func prepare(name string, opts Options) (*prepared, error) {
	if opts.Format != "" && !slices.Contains(formats, opts.Format) {
		return nil, &InputError{Name: name, Reason: fmt.Sprintf("format %q is not known; use %s", opts.Format, strings.Join(formats, ", "))}
	}
	p := &prepared{opts: opts, defaults: encode(opts.Defaults)}
	if err := opts.Limits.validate(); err != nil {
		return nil, named(name, err)
	}
	var err error
	if p.selection, err = newSelection(opts); err != nil {
		return nil, named(name, err)
	}
	if opts.Template != "" {
		if p.prompt, err = parse("prompt", opts.Template); err != nil {
			return nil, &InputError{Name: name, Reason: fmt.Sprintf("the prompt template does not parse: %v", err)}
		}
	}
	return p, nil
}

func parse(name, text string) (*template.Template, error) {
	functions := template.FuncMap{
		"json": func(v any) (string, error) { raw, err := json.Marshal(v); return string(raw), err },
		"join": func(sep string, list []any) string {
			words := make([]string, len(list))
			for i, v := range list {
				words[i] = fmt.Sprint(v)
			}
			return strings.Join(words, sep)
		},
		"trim": strings.TrimSpace,
	}
	return template.New(name).Option("missingkey=error").Funcs(functions).Parse(text)
}

// item makes an entry a job that is complete and valid, or says why not.
func (p *prepared) item(name string, e *entry) Item {
	item := Item{ID: e.id, Line: e.line}
	job, err := p.job(e)
	if err != nil {
		item.Err = named(name, asInput(e, err))
		return item
	}
	item.Job = job
	return item
}

func asInput(e *entry, err error) error {
	if in, ok := errors.AsType[*InputError](err); ok {
		return in
	}
	return inputError(e.line, "item %s: %v", e.id, err)
}

func (p *prepared) job(e *entry) (jobs.Job, error) {
	if e.err != nil {
		return jobs.Job{}, e.err
	}
	merged, err := overlay(p.defaults, e.job)
	if err != nil {
		return jobs.Job{}, err
	}
	var job jobs.Job
	if err := jobs.DecodeStrict(merged, &job); err != nil {
		return jobs.Job{}, err
	}
	if job.Key != "" || job.Batch != "" {
		return jobs.Job{}, errors.New("key and batch are made of the batch's id and the item, so that running it again resumes: leave them out")
	}
	job.Item = e.id
	if err := p.resolve(&job, e); err != nil {
		return jobs.Job{}, err
	}
	if err := p.render(&job, e); err != nil {
		return jobs.Job{}, err
	}
	job = job.WithDefaults()
	if err := job.Validate(); err != nil {
		return jobs.Job{}, err
	}
	// A template may repeat the issue, so the size is known only now.
	if size := len(encode(job)); size > jobs.MaxJobBytes {
		return jobs.Job{}, fmt.Errorf("the job has %d bytes, at most %d are allowed: shorten the issue's text", size, jobs.MaxJobBytes)
	}
	return job, nil
}

// resolve fills in what neither the item nor the defaults name: by what the
// item implies, else by where its reader is.
func (p *prepared) resolve(job *jobs.Job, e *entry) error {
	if job.Image == "" && job.Isolation == jobs.IsolationContainer {
		job.Image = e.implied.image
	}
	if job.Repo.URL != "" || job.Isolation == jobs.IsolationNone && job.Repo.Commit == "" {
		return nil // an empty directory is what was asked for
	}
	if job.Repo.URL = e.implied.repo; job.Repo.URL != "" {
		return nil
	}
	if e.implied.err != nil || p.opts.Locate == nil {
		return e.implied.err
	}
	var err error
	job.Repo.URL, err = p.opts.Locate(*job)
	return err
}

// render makes the prompt where there is a template. Without one the prompt is
// the item's own, and the agent also sees the issue.
func (p *prepared) render(job *jobs.Job, e *entry) error {
	if p.prompt == nil {
		return nil
	}
	known := map[string]any{
		"issue": orEmpty(e.issue), "item": orEmpty(e.item), "row": orEmpty(e.row), "matrix": orEmpty(e.matrix),
		"vars": vars(p.opts.Vars), "repo": job.Repo.URL,
	}
	var text capped
	if err := p.prompt.Execute(&text, known); err != nil {
		return fmt.Errorf("prompt template: %w; this item has %s", err, strings.Join(fields(known), " "))
	}
	job.Prompt = text.String()
	return nil
}

// capped keeps a template that loops from filling the memory.
type capped struct{ strings.Builder }

func (c *capped) Write(p []byte) (int, error) {
	if c.Len()+len(p) > jobs.MaxJobBytes {
		return 0, fmt.Errorf("the prompt is longer than the %d bytes that a job may have", jobs.MaxJobBytes)
	}
	return c.Builder.Write(p)
}

// fields lists what a template can name, for the error that says what it
// could not.
func fields(known map[string]any) []string {
	const most = 40
	var names []string
	for _, top := range slices.Sorted(maps.Keys(known)) {
		m, ok := known[top].(map[string]any)
		if !ok {
			names = append(names, "."+top)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if plainName().MatchString(name) {
				names = append(names, "."+top+"."+name)
			} else {
				names = append(names, fmt.Sprintf("(index .%s %q)", top, name))
			}
		}
	}
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return names
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

func vars(v map[string]string) map[string]any {
	m := make(map[string]any, len(v))
	for name, value := range v {
		m[name] = value
	}
	return m
}
