// Package site makes a static web site of pages in Markdown.
//
// The page README.md says what there is: its headings and the links below them are the
// navigation, so a new page is listed there. Links and anchors are written as they work on
// GitHub, in the repository; those that lead to no page and no file are problems. HTML in a
// page is left out.
package site

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// home is the page that lists the others.
const home = "README.md"

// A Config says which site is made.
type Config struct {
	Pages   fs.FS
	Title   string
	Source  string // the address of the repository's files, for links to files beside the pages
	Folder  string // the folder of the pages in the repository
	Release string
}

// A Site has all that a server needs.
type Site struct {
	cfg   Config
	pages map[string]*page // by their paths in Pages
	files map[string][]byte
	nav   []navGroup
	wrong []string
	// Outside are the paths in the repository of files beside the pages that links name.
	Outside []string
}

// kinds are the types of files that a site has.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png",
	".py": "text/plain; charset=utf-8", ".sh": "text/plain; charset=utf-8", ".yml": "text/plain; charset=utf-8", ".yaml": "text/plain; charset=utf-8",
	".json": "text/plain; charset=utf-8", ".jsonl": "text/plain; charset=utf-8", ".go": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8",
}

// New makes a site.
func New(cfg Config) (*Site, error) {
	s := &Site{cfg: cfg, pages: map[string]*page{}, files: map[string][]byte{}}
	err := fs.WalkDir(cfg.Pages, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(cfg.Pages, name)
		switch {
		case err != nil:
			return err
		case path.Ext(name) == ".md":
			s.pages[name] = parse(name, content)
		case kinds[path.Ext(name)] != "":
			s.files[name] = content
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.pages[home] == nil {
		return nil, fmt.Errorf("there is no %s", home)
	}
	s.nav = s.pages[home].navigation()
	for _, name := range s.names() {
		s.resolve(s.pages[name])
	}
	s.findOrphans()
	return s, s.write()
}

func (s *Site) names() []string { return slices.Sorted(maps.Keys(s.pages)) }

// Files are those of the site, by their paths.
func (s *Site) Files() map[string][]byte { return s.files }

// Check reports links that lead nowhere, and pages to which no links lead.
func (s *Site) Check() error {
	var all []error
	for _, text := range s.wrong {
		all = append(all, errors.New(text))
	}
	return errors.Join(all...)
}

func (s *Site) problem(p *page, format string, args ...any) {
	s.wrong = append(s.wrong, p.name+": "+fmt.Sprintf(format, args...))
}

// resolve checks the links of a page and has them lead to the site's files.
func (s *Site) resolve(p *page) {
	for _, l := range p.links() {
		target, anchor, _ := strings.Cut(l.destination(), "#")
		if strings.Contains(target, ":") {
			continue // to another site
		}
		name := path.Join(path.Dir(p.name), target)
		if target == "" {
			name = p.name
		}
		if strings.HasSuffix(target, "/") && s.pages[path.Join(name, home)] != nil {
			name = path.Join(name, home)
		}
		to := s.pages[name]
		switch {
		case to != nil && anchor != "" && !to.anchors[anchor]:
			s.problem(p, "%s has no heading #%s", name, anchor)
		case to != nil:
			p.to = append(p.to, name)
			l.set(withAnchor(relative(p.address(), to.address()), anchor))
		case s.files[name] != nil:
			l.set(relative(p.address(), name))
		case l.image:
			s.problem(p, "there is no picture %s", target)
		default:
			s.leaveTo(p, l, path.Join(s.cfg.Folder, name), anchor)
		}
	}
}

// leaveTo has a link lead to a file of the repository that is not on the site.
func (s *Site) leaveTo(p *page, l link, file, anchor string) {
	if strings.HasPrefix(file, "..") || path.Ext(file) == ".md" && strings.HasPrefix(file, s.cfg.Folder+"/") {
		s.problem(p, "there is no page %s", file)
		return
	}
	s.Outside = append(s.Outside, file)
	l.set(withAnchor(s.cfg.Source+file, anchor))
}

func withAnchor(address, anchor string) string {
	if anchor == "" {
		return address
	}
	return address + "#" + anchor
}

// relative is a link from one file of the site to another one.
func relative(from, to string) string {
	up := strings.Repeat("../", strings.Count(from, "/"))
	return cmp.Or(up+to, "./")
}

// findOrphans reports pages that no way of links leads to.
func (s *Site) findOrphans() {
	reached, next := map[string]bool{home: true}, []string{home}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		for _, name := range s.pages[at].to {
			if !reached[name] {
				reached[name] = true
				next = append(next, name)
			}
		}
	}
	for _, name := range s.names() {
		if !reached[name] && !s.pages[name].moved() {
			s.problem(s.pages[name], "no link leads from %s to it", home)
		}
	}
}
