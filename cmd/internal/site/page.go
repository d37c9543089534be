package site

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// markdown reads what GitHub reads. It leaves HTML out.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// A page is a file in Markdown.
type page struct {
	name    string
	source  []byte
	root    ast.Node
	title   string
	anchors map[string]bool
	to      []string // pages that it links to
}

func parse(name string, source []byte) *page {
	ids := anchors{}
	root := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(ids))))
	p := &page{name: name, source: source, root: root, title: name, anchors: ids}
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && h.Level == 1 {
			p.title = p.plain(h)
			break
		}
	}
	return p
}

// address is the page's path on the site.
func (p *page) address() string {
	if path.Base(p.name) == home {
		return path.Join(path.Dir(p.name), "index.html")
	}
	return strings.TrimSuffix(p.name, ".md") + ".html"
}

// moved reports whether the page only says where another one is.
func (p *page) moved() bool { return p.root.ChildCount() <= 2 && len(p.to) == 1 }

// plain is the text of a node, without marks.
func (p *page) plain(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Value(p.source))
			if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			b.Write(n.Lines().Value(p.source))
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// A link is one of a page, to a page or a picture.
type link struct {
	node  ast.Node
	image bool
}

func (l link) destination() string {
	if n, ok := l.node.(*ast.Image); ok {
		return string(n.Destination)
	}
	return string(l.node.(*ast.Link).Destination)
}

func (l link) set(destination string) {
	if n, ok := l.node.(*ast.Image); ok {
		n.Destination = []byte(destination)
		return
	}
	l.node.(*ast.Link).Destination = []byte(destination)
}

func (p *page) links() []link {
	var all []link
	_ = ast.Walk(p.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n.(type) {
		case *ast.Link, *ast.Image:
			if entering {
				all = append(all, link{n, n.Kind() == ast.KindImage})
			}
		}
		return ast.WalkContinue, nil
	})
	return all
}

// body is the page in HTML.
func (p *page) body() (template.HTML, error) {
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, p.source, p.root)
	return template.HTML(b.String()), err //nolint:gosec // the renderer escapes, and leaves HTML of the source out
}

// A section is a heading and what is below it, for the search.
type section struct {
	Address, Page, Title, Text string
}

func (p *page) sections() []section {
	all := []section{{Address: p.address(), Page: p.title, Title: p.title}}
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			last := &all[len(all)-1]
			last.Text = strings.TrimSpace(last.Text + " " + p.plain(n))
			continue
		}
		if h.Level > 1 {
			id, _ := h.AttributeString("id")
			all = append(all, section{Address: fmt.Sprintf("%s#%s", p.address(), id), Page: p.title, Title: p.plain(h)})
		}
	}
	return all
}

// A navGroup is a part of the navigation.
type navGroup struct {
	Title string
	Links []navLink
}

// A navLink leads to a page, by its path in the pages.
type navLink struct{ Title, Name string }

// navigation is what the page lists: its headings, and the first link of each entry.
func (p *page) navigation() []navGroup {
	all := []navGroup{{Title: p.title}}
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				all = append(all, navGroup{Title: p.plain(n)})
			}
		case *ast.List:
			last := &all[len(all)-1]
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				last.Links = append(last.Links, p.entries(item)...)
			}
		}
	}
	return all
}

// entries are the links of an entry of a list: the first one is what it is about.
func (p *page) entries(item ast.Node) []navLink {
	var found []navLink
	_ = ast.Walk(item, func(n ast.Node, _ bool) (ast.WalkStatus, error) {
		l, ok := n.(*ast.Link)
		if !ok || strings.Contains(string(l.Destination), ":") {
			return ast.WalkContinue, nil
		}
		name, _, _ := strings.Cut(string(l.Destination), "#")
		found = append(found, navLink{p.plain(l), path.Join(path.Dir(p.name), name)})
		return ast.WalkStop, nil
	})
	return found
}

// anchors names headings as GitHub does.
type anchors map[string]bool

// Generate implements parser.IDs.
func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(value))) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	name := b.String()
	for n := 1; a[name]; n++ {
		name = fmt.Sprintf("%s-%d", b.String(), n)
	}
	a[name] = true
	return []byte(name)
}

// Put implements parser.IDs.
func (a anchors) Put(value []byte) { a[string(value)] = true }
