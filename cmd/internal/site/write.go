package site

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"strings"
)

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/layout.html"))

// Policy lets a page load nothing but the site's own style, scripts and pictures.
const Policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"

// view is the dot of the layout.
type view struct {
	Config
	Page, Policy, Root string
	Body               template.HTML
	Nav                []viewGroup
}

type viewGroup struct {
	Title string
	Open  bool // has the page
	Links []viewLink
}

type viewLink struct {
	Title, Address string
	Here           bool
}

// write renders all pages and adds what they load.
func (s *Site) write() error {
	var index []section
	for _, name := range s.names() {
		p := s.pages[name]
		body, err := p.body()
		if err != nil {
			return err
		}
		var b bytes.Buffer
		v := view{
			Config: s.cfg, Page: p.title, Policy: Policy, Body: body, Nav: s.navOf(p),
			Root: strings.Repeat("../", strings.Count(name, "/")),
		}
		if err := layout.Execute(&b, v); err != nil {
			return err
		}
		s.files[p.address()] = b.Bytes()
		if !p.moved() {
			index = append(index, p.sections()...)
		}
	}
	for _, name := range []string{"style.css", "search.js", "icon.svg"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		s.files[name] = content
	}
	// A script and not JSON: a page that is opened as a file may load no other kind.
	list, err := json.Marshal(index)
	s.files["search-index.js"] = append(append([]byte("window.searchIndex = "), list...), ";\n"...)
	return err
}

// navOf is the navigation as a page has it.
func (s *Site) navOf(p *page) []viewGroup {
	var all []viewGroup
	for _, g := range s.nav {
		shown := viewGroup{Title: g.Title}
		for _, l := range g.Links {
			if to := s.pages[l.Name]; to != nil {
				here := to == p
				shown.Open = shown.Open || here
				shown.Links = append(shown.Links, viewLink{l.Title, relative(p.address(), to.address()), here})
			}
		}
		if len(shown.Links) > 0 {
			all = append(all, shown)
		}
	}
	return all
}
