package intake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
)

// jobEntry takes an object as a job of ours. Its fields are checked later,
// together with the defaults.
func jobEntry(o object) *entry {
	e := &entry{line: o.line, job: o.raw, item: plain(o.raw)}
	var known struct {
		Item  string `json:"item"`
		Issue *struct {
			Number int `json:"number"`
		} `json:"issue"`
	}
	// Fields of the wrong kind are named by the strict reading that follows.
	if json.Unmarshal(o.raw, &known) == nil {
		e.id = known.Item
		if e.id == "" && known.Issue != nil && known.Issue.Number > 0 {
			e.id = strconv.Itoa(known.Issue.Number)
		}
	}
	if issue, ok := e.item["issue"].(map[string]any); ok {
		e.issue = issue
	}
	return e
}

// issueEntry reads one element of what gh issue list --json prints. Only
// number and title must be there; item names the item, where numbers are those of several
// repositories, and other fields are for templates.
func issueEntry(o object) *entry {
	e := &entry{line: o.line, item: plain(o.raw)}
	var in struct {
		Item   string            `json:"item"`
		Number int               `json:"number"`
		Title  string            `json:"title"`
		Body   string            `json:"body"`
		URL    string            `json:"url"`
		Labels []json.RawMessage `json:"labels"`
	}
	if err := json.Unmarshal(o.raw, &in); err != nil {
		e.err = inputError(o.line, "is not an issue: %s", jsonReason(err, o.raw))
		return e
	}
	if in.Number <= 0 {
		e.err = inputError(o.line, `is not an issue: it has no number; list issues with --json number,title,body,url,labels`)
		return e
	}
	e.id, e.issue = firstOf(in.Item, strconv.Itoa(in.Number)), maps.Clone(e.item)
	job := jobs.Job{Issue: &jobs.Issue{Number: in.Number, Title: in.Title, Body: in.Body, URL: in.URL}}
	names := []any{} // what a template lists
	for _, raw := range in.Labels {
		if name := labelName(raw); name != "" {
			job.Issue.Labels = append(job.Issue.Labels, name)
			names = append(names, name)
		}
	}
	e.issue["labels"] = names
	e.implied.repo = repoOfIssue(in.URL)
	e.job = encode(job)
	return e
}

// labelName accepts both shapes in use: a name, and an object with a name.
func labelName(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name
	}
	var label struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(raw, &label) != nil {
		return ""
	}
	return label.Name
}

var issuePath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)/issues/[0-9]+$`) })

// repoOfIssue is where the issue at that address belongs, or nothing.
func repoOfIssue(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	m := issuePath().FindStringSubmatch(u.Path)
	if m == nil {
		return ""
	}
	return "https://" + u.Host + m[1]
}

// withheld are the fields of a benchmark instance that tell the solution or
// how it is judged. Neither a job nor a template may see them.
var withheld = []string{"patch", "test_patch", "FAIL_TO_PASS", "PASS_TO_PASS", "hints_text", "test_cmds", "eval_script"}

var ownerAndName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$`) })

// instanceEntry reads one SWE-bench instance, from the dataset or from a file
// of instances in the shape that batch tools use.
func instanceEntry(o object) *entry {
	for _, name := range withheld {
		delete(o.fields, name)
	}
	e := &entry{line: o.line, item: plain(encode(o.fields))}
	if extra, ok := e.item["extra_fields"].(map[string]any); ok {
		for _, name := range withheld {
			delete(extra, name)
		}
	}
	text := func(name string) string { s, _ := e.item[name].(string); return s }
	e.id = firstOf(text("instance_id"), text("id"))
	statement := text("problem_statement")
	switch {
	case e.id == "":
		e.err = inputError(o.line, "is not a SWE-bench instance: it has no instance_id")
		return e
	case strings.TrimSpace(statement) == "":
		e.err = inputError(o.line, "instance %s has no problem_statement", e.id)
		return e
	}
	title, _, _ := strings.Cut(strings.TrimSpace(statement), "\n")
	job := jobs.Job{Issue: &jobs.Issue{Title: strings.TrimSpace(title), Body: statement}, Repo: jobs.Repo{Commit: text("base_commit")}}
	if repo := text("repo"); ownerAndName().MatchString(repo) {
		e.implied.repo = "https://github.com/" + repo
	} else {
		// Its base commit is of a repository of its own, never of the one
		// around the current directory.
		e.implied.err = inputError(o.line, "instance %s: repo %q is not owner/name; give --repo", e.id, repo)
	}
	e.implied.image = firstOf(text("image_name"), text("docker_image"), benchmarkImage(e.id))
	e.issue = plain(encode(job.Issue))
	e.job = encode(job)
	return e
}

// benchmarkImage is the image that the benchmark publishes for an instance.
func benchmarkImage(id string) string {
	return strings.ToLower("swebench/sweb.eval.x86_64." + strings.ReplaceAll(id, "__", "_1776_") + ":latest")
}

// plain decodes an object for templates: whole numbers stay whole.
func plain(raw []byte) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v map[string]any
	if dec.Decode(&v) != nil {
		return nil
	}
	for name, value := range v {
		v[name] = plainValue(value)
	}
	return v
}

func plainValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plainValue(v[i])
		}
	case map[string]any:
		for name, value := range v {
			v[name] = plainValue(value)
		}
	}
	return v
}

// encode writes values of our own types, which always can be written.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return raw
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
