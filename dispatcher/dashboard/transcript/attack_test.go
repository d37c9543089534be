package transcript

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/visible"
)

// elements are those that a transcript is made of, each with its attributes.
var elements = map[string][]string{
	"article": {"id", "class", "data-seq", "data-into", "data-closes", "data-turns", "data-outcome"},
	"a":       {"class", "href", "title", "aria-label"}, "button": {"class", "name", "value"}, "code": {"class"}, "del": nil, "ins": nil,
	"details": {"id", "open"}, "div": {"id", "class"}, "fieldset": nil, "figcaption": nil, "figure": {"class"},
	"form": {"method", "action", "class", "data-act"}, "h3": nil, "input": {"type", "name", "value", "required", "maxlength", "aria-label", "placeholder"},
	"label": nil, "legend": nil, "li": nil, "p": {"class"}, "pre": {"class", "tabindex", "aria-label"}, "span": {"class", "aria-hidden"},
	"strong": nil, "summary": nil, "ul": nil,
}

// attacks are texts that would be more than text on a page that does not escape them, or
// would be another text than the one that is seen.
var attacks = []string{
	"<script>alert(1)</script>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\" onmouseover=\"alert(1)", "' autofocus onfocus='alert(1)",
	"javascript:alert(1)", "<a href=\"javascript:alert(1)\">x</a>", "</details></article></main><h1>pwned</h1>", "</pre></textarea></title><svg onload=alert(1)>",
	"<!-- <form action=//evil.example>", "<style>*{display:none}</style>", "{{.}} {{template \"item\"}} ${1}", "<base href=//evil.example/>", "<iframe srcdoc='<script>1</script>'>",
	"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J", "user\u202e\u2066// admin\u2069", "a\x00b", "\u2028\u2029\u0085\ufeff", "<scr\x00ipt>alert(1)</scr\x00ipt>",
	"\xff\xfe<\xc0\xbcscript>", "&lt;script&gt;&#x3c;script&#x3e;", "data: x\r\n\r\nevent: end\ndata: y",
}

// together are the attacks, some in each text, so that all are in what a line shows; and
// texts that are longer than anything.
func together() []string {
	var texts []string
	for some := range slices.Chunk(attacks, 8) {
		texts = append(texts, strings.Join(some, " "))
	}
	return append(texts, strings.Repeat("<b>", 15000))
}

// Whatever texts are in an event, the page has the elements that it always has, with their
// own attributes, and no character that changes what others look like.
func TestTextIsText(t *testing.T) {
	t.Parallel()
	for _, row := range event.Kinds() {
		if !Shown(row.Kind) {
			continue
		}
		for _, attack := range together() {
			events := numbered(filled(t, row, attack))
			w, err := Render(events, options)
			if err != nil {
				t.Fatal(err)
			}
			page := string(w.HTML)
			for _, e := range events {
				fragment, err := Fragment(e, options)
				if err != nil {
					t.Fatal(err)
				}
				if page += string(fragment); len(fragment) > 400<<10 {
					t.Errorf("%s with %.20q: %d bytes", row.Kind, attack, len(fragment))
				}
			}
			for _, node := range parse(t, page) {
				inspect(t, node)
				for n := range node.Descendants() {
					inspect(t, n)
				}
			}
			if t.Failed() {
				t.Fatalf("%s with %.60q", row.Kind, attack)
			}
		}
	}
}

// inspect fails at what no transcript has.
func inspect(t *testing.T, n *html.Node) {
	t.Helper()
	switch n.Type {
	case html.TextNode:
		for _, r := range n.Data {
			if visible.Active(r) && r != '\n' && r != '\t' {
				t.Errorf("text %.100q has %U", n.Data, r)
				return
			}
		}
	case html.ElementNode:
		allowed, known := elements[n.Data]
		if !known {
			t.Errorf("element %s", n.Data)
		}
		for _, a := range n.Attr {
			inspectAttribute(t, n.Data, a, allowed)
		}
	default:
		t.Errorf("node %v %.60q", n.Type, n.Data)
	}
}

func inspectAttribute(t *testing.T, element string, a html.Attribute, allowed []string) {
	t.Helper()
	if !slices.Contains(allowed, a.Key) {
		t.Errorf("attribute %s of %s", a.Key, element)
	}
	switch a.Key {
	case "href":
		if !strings.HasPrefix(a.Val, options.Base+"/events?from=") {
			t.Errorf("link to %q", a.Val)
		}
	case "action":
		if a.Val != options.Base+"/answer" {
			t.Errorf("form to %q", a.Val)
		}
	case "id", "class", "type", "method", "tabindex", "name":
		if strings.Trim(a.Val, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-. ") != "" {
			t.Errorf("%s is %q", a.Key, a.Val)
		}
	case "value": // what the agent is told, exactly
	default:
		for _, r := range a.Val {
			if visible.Active(r) {
				t.Errorf("%s has %U", a.Key, r)
			}
		}
	}
}
