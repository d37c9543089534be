package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A Template is a page, or a set of fragments, with the layout and the partials of this
// package.
type Template struct {
	parsed func() *template.Template // when it is needed first: most starts of the program show no page
}

// base is what every template begins with.
var base = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("layout").Funcs(functions()).ParseFS(files, "templates/layout.html", "templates/partials.html"))
})

// ParseTemplate returns a page whose files are parsed when it is shown first. Assets are
// looked for among these files, and then among those of this package. That panics if they are
// wrong: they are in the program.
func ParseTemplate(from fs.FS, patterns ...string) *Template {
	return &Template{sync.OnceValue(func() *template.Template {
		t := template.Must(base().Clone())
		t.Funcs(template.FuncMap{"asset": func(name string) string { return asset(name, from, files) }})
		return template.Must(t.ParseFS(from, patterns...))
	})}
}

// ours parses a page of this package.
func ours(name string) *Template { return ParseTemplate(files, "templates/"+name+".html") }

// Execute writes a template by its name.
func (t *Template) Execute(w io.Writer, name string, dot any) error {
	return t.parsed().ExecuteTemplate(w, name, dot)
}

// layout is the dot of the layout.
type layout struct {
	Page
	Who      string
	Role     jobs.Role
	Stranger bool // nobody is logged in
	ReadOnly bool
	Entries  []Entry
	Theme    string // light or dark; empty: what the browser prefers
	Here     string // the address of the page
	Notice   string
	Version  string
	// Stream has the browser listen to what changes. Age is how old the page is, and Next
	// when another one would be newer, in milliseconds: dashboard.js asks again if something
	// has changed since.
	Stream    bool
	Age, Next int64
}

// An Entry of the navigation, for those who may ask for the operation of its page.
type Entry struct {
	Name, Path string
	Row        operation.Row
}

// layout fills in what surrounds a page.
func (v *Visit) layout(p Page) layout {
	l := layout{
		Page: p, Who: v.Who.Name, Role: v.Who.Role, Stranger: v.refused != nil, ReadOnly: v.s.cfg.ReadOnly, Version: v.s.cfg.Version,
		Theme: theme(v.R), Here: v.R.URL.RequestURI(), Notice: v.notice(),
	}
	if v.R.Method != http.MethodGet {
		l.Here = "/ui/"
	}
	if !v.asked.IsZero() {
		l.Age, l.Next = time.Since(v.asked).Milliseconds(), max(0, time.Until(v.until).Milliseconds())
	}
	if !l.Stranger {
		l.Stream = p.Refresh && v.May(operation.List.Row)
		l.Entries = slices.DeleteFunc(slices.Clone(v.s.entries), func(e Entry) bool { return !v.May(e.Row) })
	}
	return l
}

// notice is what an address says was done.
func (v *Visit) notice() string {
	query := v.R.URL.Query()
	text := v.s.notices[query.Get("done")]
	if text == "" || !strings.Contains(text, "%s") {
		return text
	}
	n := query.Get("n")
	if len(n) > 9 || n == "" || strings.Trim(n, "0123456789") != "" {
		n = "0"
	}
	return fmt.Sprintf(text, n)
}

// An Action is a button that changes something, in a form of its own.
type Action struct {
	Path, Label string
	Confirm     string            // a question that is asked before; empty: none
	Kind        string            // danger, primary, or empty
	Fields      map[string]string // what the form sends besides
	Back        string            // where the browser goes after it
	About       string            // what it acts on, for those who hear the page
}

// Action returns an action of the page, or nil if the identity may not ask for the
// operation.
func (v *Visit) Action(row operation.Row, a Action) *Action {
	if !v.May(row) {
		return nil
	}
	if a.Back == "" && v.R.Method == http.MethodGet {
		a.Back = v.R.URL.RequestURI()
	}
	return &a
}

// functions are what templates may call.
func functions() template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) string { return asset(name, files) },
		"ago":   ago, "until": until, "took": took, "stamp": stamp, "usd": usd, "count": count,
		"short": short, "plural": plural, "dict": dict, "join": strings.Join, "cut": cut,
		"cost": func(r jobs.Record) float64 { return r.SpentBefore.Add(r.LastAttempt).CostUSD },
	}
}

// dict makes the dot of a partial that takes several values: name, value, name, value.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errors.New("dict wants pairs")
	}
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		all[name] = pairs[i+1]
	}
	return all, nil
}

// moment is a time, which may be absent.
func moment(t any) time.Time {
	switch t := t.(type) {
	case time.Time:
		return t
	case *time.Time:
		if t != nil {
			return *t
		}
	}
	return time.Time{}
}

// stamp is a time for machines, and for those who want to know it to the second.
func stamp(t any) string { return moment(t).UTC().Format(time.RFC3339) }

// ago is how long ago a time was, for people; until is how long it is still to come.
func ago(t any) string {
	past := time.Since(moment(t))
	switch {
	case moment(t).IsZero():
		return "never"
	case past < -time.Second:
		return until(t)
	case past < 2*time.Second:
		return "just now"
	}
	return took(past) + " ago"
}

func until(t any) string {
	left := time.Until(moment(t))
	if left < time.Second {
		return "now"
	}
	return "in " + took(left)
}

// took is a duration in its one or two largest units.
func took(d time.Duration) string {
	d = max(d, 0)
	switch day := 24 * time.Hour; {
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < day:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 10*day:
		return fmt.Sprintf("%dd %dh", int(d/day), int(d.Hours())%24)
	default:
		return fmt.Sprintf("%dd", int(d/day))
	}
}

// usd is an amount of money.
func usd(amount float64) string {
	switch {
	case amount <= 0 || math.IsNaN(amount):
		return "$0"
	case amount < 0.01:
		return "<$0.01"
	case amount < 1000:
		return fmt.Sprintf("$%.2f", amount)
	default:
		return "$" + count(int(min(amount, 1e15)))
	}
}

// count is a number with its thousands apart.
func count(n int) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// plural is a number with the word for what it counts.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + cmp.Or(many, one+"s")
}

// short is the end of an id: its beginning is the time, which neighbors share.
func short(id string) string {
	if len(id) != 36 {
		return id
	}
	return id[len(id)-8:]
}

// cut bounds a text of others, which may be of any length.
func cut(most int, text string) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}
