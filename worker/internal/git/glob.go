package git

import "strings"

// A glob is a compiled ignore pattern. It follows all states at once, so that no
// pattern, however hostile, takes more time than its length times the text's.
type glob struct {
	tokens []token
	never  bool // the pattern is malformed, and git matches nothing with it
}

type token struct {
	kind tokenKind
	set  *[256]bool // of a class, and of a literal byte
}

type tokenKind int

const (
	one  tokenKind = iota // one byte of set
	star                  // any bytes but '/'
	deep                  // any bytes
	dirs                  // nothing, or any bytes that end in '/'
)

// compileGlob reads a pattern in which '*', '?' and classes stop at '/' and a
// "**" that stands alone between slashes does not.
func compileGlob(p string) glob {
	var g glob
	for i := 0; i < len(p); {
		switch c := p[i]; c {
		case '*':
			i = g.stars(p, i)
		case '?':
			g.tokens = append(g.tokens, token{one, &notSlash})
			i++
		case '[':
			set, next, ok := class(p, i+1)
			if !ok {
				return glob{never: true}
			}
			g.tokens = append(g.tokens, token{one, set})
			i = next
		case '\\':
			if i++; i == len(p) {
				return glob{never: true}
			}
			g.tokens = append(g.tokens, literal(p[i]))
			i++
		default:
			g.tokens = append(g.tokens, literal(c))
			i++
		}
	}
	return g
}

// stars compiles the run of stars at i and returns where the pattern goes on.
func (g *glob) stars(p string, i int) int {
	end := i
	for end < len(p) && p[end] == '*' {
		end++
	}
	rest := p[end:]
	alone := i == 0 || p[i-1] == '/'
	switch {
	case end-i == 1 || !alone:
		g.tokens = append(g.tokens, token{kind: star})
	case rest == "" || strings.HasPrefix(rest, `\/`):
		g.tokens = append(g.tokens, token{kind: deep})
	case rest[0] == '/':
		g.tokens = append(g.tokens, token{kind: dirs})
		end++
	default:
		g.tokens = append(g.tokens, token{kind: star})
	}
	return end
}

func (g glob) match(text string) bool {
	if g.never {
		return false
	}
	now := make([]bool, len(g.tokens)+1)
	next := make([]bool, len(g.tokens)+1)
	g.enter(now, 0)
	for i := range len(text) {
		clear(next)
		alive := false
		for s, on := range now[:len(g.tokens)] {
			if on {
				g.step(next, s, text[i])
				alive = true
			}
		}
		if !alive {
			return false
		}
		now, next = next, now
	}
	return now[len(g.tokens)]
}

// enter activates state s, and the states that follow it without text.
func (g glob) enter(states []bool, s int) {
	for !states[s] {
		states[s] = true
		if s == len(g.tokens) || g.tokens[s].kind == one {
			return
		}
		s++
	}
}

func (g glob) step(next []bool, s int, c byte) {
	switch t := g.tokens[s]; t.kind {
	case one:
		if t.set[c] {
			g.enter(next, s+1)
		}
	case star:
		if c != '/' {
			g.enter(next, s)
		}
	case deep:
		g.enter(next, s)
	case dirs:
		// Inside, nothing follows until a slash has been read.
		next[s] = true
		if c == '/' {
			g.enter(next, s+1)
		}
	}
}

var notSlash = func() (set [256]bool) {
	for i := range set {
		set[i] = i != '/'
	}
	return set
}()

func literal(c byte) token {
	var set [256]bool
	set[c] = true
	return token{one, &set}
}

// class compiles the part after a '[' and returns the index after its ']'.
func class(p string, i int) (*[256]bool, int, bool) {
	var set [256]bool
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	// low is the first byte of a range that a following '-' makes.
	low := -1
	for first := true; ; first = false {
		if i >= len(p) {
			return nil, 0, false
		}
		if p[i] == ']' && !first {
			break
		}
		if name, next, ok := className(p, i); ok {
			in := classes[name]
			if in == nil {
				return nil, 0, false
			}
			for c := range 128 {
				set[c] = set[c] || in(byte(c))
			}
			i, low = next, -1
			continue
		}
		isRange := p[i] == '-' && low >= 0 && i+1 < len(p) && p[i+1] != ']'
		if isRange {
			i++
		}
		if p[i] == '\\' {
			if i++; i >= len(p) {
				return nil, 0, false
			}
		}
		if !isRange {
			low = int(p[i])
		}
		for c := low; c <= int(p[i]); c++ {
			set[c] = true
		}
		if isRange {
			low = -1
		}
		i++
	}
	if negated {
		for c := range set {
			set[c] = !set[c]
		}
	}
	set['/'] = false
	return &set, i + 1, true
}

// className finds a "[:name:]" at i.
func className(p string, i int) (name string, next int, ok bool) {
	if !strings.HasPrefix(p[i:], "[:") {
		return "", 0, false
	}
	end := strings.IndexByte(p[i+2:], ']')
	if end < 1 || p[i+1+end] != ':' {
		return "", 0, false
	}
	return p[i+2 : i+1+end], i + 3 + end, true
}

var classes = map[string]func(byte) bool{
	"alnum":  func(c byte) bool { return isAlpha(c) || isDigit(c) },
	"alpha":  isAlpha,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  isDigit,
	"graph":  func(c byte) bool { return c > ' ' && c < 0x7f },
	"lower":  func(c byte) bool { return 'a' <= c && c <= 'z' },
	"print":  func(c byte) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c byte) bool { return c > ' ' && c < 0x7f && !isAlpha(c) && !isDigit(c) },
	"space":  func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' },
	"upper":  func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
}

func isAlpha(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
