// Package dashboard is the pool in a browser: pages for people who would rather look
// than read. Every page is made here, of templates, and reads without JavaScript; htmx and
// a few lines of our own add what refreshes a page and acts without loading it anew.
//
//	request ─▶ httpapi: host, origin, identity ─▶ Serve ─▶ route, role ─▶ Visit
//	   page ◀── layout ◀── template ◀── data ◀── operations, on behalf of the identity ◀──┘
//
// The package promises:
//
//   - A page has what its identity could ask for over the API, and no more: pages read and
//     change by operations alone, a [Visit] makes them with the identity's role, and the
//     audit log has its name. What the identity may not do has no button, and a request
//     that was made without one is refused.
//   - Nothing is answered without an identity but the login, and files that everyone may
//     see because they are in the program.
//   - Text of agents, of senders and of issues is text. It passes through html/template,
//     and the policy of the pages runs no script and no style that is not a file of ours.
//   - A server holds no sessions: the cookie has the token, which is verified at each
//     request. See docs/decisions/0067-pages-are-templates.md.
//
// # Pages of other packages
//
// A package adds pages by a [Section], which cmd/penstock/servecmd passes in [Config]:
//
//	//go:embed templates static
//	var files embed.FS
//	var page = dashboard.ParseTemplate(files, "templates/*.html") // defines "main"
//
//	func Section() dashboard.Section {
//		return dashboard.Section{Static: files, Routes: []dashboard.Route{
//			{Pattern: "GET /ui/jobs/{id}", Row: operation.Show.Row, Serve: show},
//			{Pattern: "POST /ui/jobs/{id}/cancel", Row: operation.Cancel.Row, Serve: cancel},
//		}}
//	}
//
//	func show(v *dashboard.Visit) error {
//		shown, err := dashboard.Ask(v, operation.Show, operation.Ref{ID: v.R.PathValue("id")})
//		if err != nil {
//			return err // becomes a page with the status of its code
//		}
//		return v.Render(page, dashboard.Page{Title: shown.Title, Nav: "Jobs", Data: shown})
//	}
//
// The layout writes the template "main" into the element main#main, with Data as its dot.
// Partials of ours (templates/partials.html: "time", "state", "action", …) and functions
// ([ParseTemplate]) are there, too. A fragment, for a stream or a swap of htmx, is
// [Template.Execute] with the name of any template that was defined. A Visit is a
// [http.ResponseWriter]; a handler of a stream sets its Content-Type, writes and flushes
// with [Visit.Say], and ends when [Visit.Context] does. Styles and scripts are files under
// static/, which {{asset "name"}} finds.
package dashboard

import (
	"embed"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

//go:embed templates static
var files embed.FS

// policy lets a page load and do what is ours, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// maxForm bounds what a form sends: a message to an agent is the longest.
const maxForm = 1 << 20

// Config is what a dashboard works with.
type Config struct {
	// Client asks with the role operator: which identity may ask for what, the dashboard
	// decides.
	Client *client.Client
	// Authenticate is that of the API. The form of the login asks it about the token that
	// was typed in.
	Authenticate func(*http.Request) (httpapi.Identity, error)
	// PullRequests reports why the pool can open no pull request for a job; nil: it opens none.
	PullRequests func(jobs.Job) error
	// ReadOnly: pages have no actions, whoever looks at them.
	ReadOnly bool
	Version  string // of the program
	Sections []Section
	Logger   *slog.Logger
}

// A Section is a part of the dashboard that another package makes.
type Section struct {
	Routes  []Route
	Entries []Entry // of the navigation
	// Notices say what an action has done, with %s for how many. An address has the name of
	// one, so that a link cannot put words of its maker on a page.
	Notices map[string]string
	// Static has files under static/ that are served under /ui/static/, to everyone.
	Static fs.FS
}

// A Route is a page, or an action of one.
type Route struct {
	Pattern string // as [http.ServeMux] has them, with a method
	// Row is the operation whose roles may. Without one every identity may.
	Row   operation.Row
	Serve func(*Visit) error

	public bool // answered without an identity, too
}

// A Server answers requests for pages. Make one with New.
type Server struct {
	cfg   Config
	mux   *http.ServeMux
	guess *limiter
	links *links

	answers *answers
	entries []Entry
	notices map[string]string
}

// New returns a server. It does no I/O.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), guess: newLimiter(), links: newLinks(), answers: newAnswers(), notices: map[string]string{"logged-out": "You are logged out."}}
	routes, static := s.routes(), []fs.FS{files}
	for _, section := range cfg.Sections {
		routes = append(routes, section.Routes...)
		s.entries = append(s.entries, section.Entries...)
		maps.Copy(s.notices, section.Notices)
		if section.Static != nil {
			static = append(static, section.Static)
		}
	}
	routes = append(routes, Route{Pattern: "GET /ui/static/{name}", Serve: serveStatic(static), public: true})
	for _, route := range routes {
		s.mux.Handle(route.Pattern, handler(route))
	}
	return s
}

// routes are those of this package.
func (s *Server) routes() []Route {
	return []Route{
		{Pattern: "GET /ui/login", Serve: s.login, public: true},
		{Pattern: "POST /ui/login", Serve: s.logIn, public: true},
		{Pattern: "POST /ui/logout", Serve: s.logOut, public: true},
		{Pattern: "POST /ui/theme", Serve: setTheme, public: true},
		{Pattern: "POST /ui/link", Serve: s.makeLink},
	}
}

// Serve answers a request for a page. An error says that it has no identity, and why.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, who httpapi.Identity, refused error) {
	v := &Visit{ResponseWriter: w, R: r, Who: who, s: s, refused: refused}
	v.Header().Set("Content-Security-Policy", policy)
	if _, pattern := s.mux.Handler(r); pattern == "" || path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") {
		v.serveUnknown()
		return
	}
	s.mux.ServeHTTP(v, r)
}

// handler makes a handler of a route.
func handler(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := w.(*Visit)
		v.R = r
		err := v.admit(route)
		if err == nil {
			err = route.Serve(v)
		}
		if r.Method == http.MethodPost {
			v.s.answers.forget() // the page that follows shows what came of it
		}
		if err != nil {
			v.fail(err)
		}
	})
}

// admit refuses a route to those who may not, and reads the form that was sent.
func (v *Visit) admit(route Route) error {
	if v.refused != nil && !route.public {
		return v.refused
	}
	if !route.public {
		if err := v.permit(route.Row); err != nil {
			return err
		}
	}
	if v.R.Method != http.MethodPost {
		return nil
	}
	v.R.Body = http.MaxBytesReader(v, v.R.Body, maxForm)
	if err := v.R.ParseForm(); err != nil {
		return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "(form)", Reason: "cannot be read: " + err.Error()}}}
	}
	return nil
}

// local returns the address of a page of ours that a request names, or the first page:
// a login that led elsewhere would lend its name to whoever made the link.
func local(address string) string {
	const first = "/ui/"
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || strings.ContainsAny(address, "\\\r\n\t") {
		return first
	}
	if clean := path.Clean(u.Path); !strings.HasPrefix(clean+"/", first) || strings.HasPrefix(clean, "/ui/log") {
		return first
	}
	there := url.URL{Path: u.Path, RawQuery: u.RawQuery}
	return there.String()
}
