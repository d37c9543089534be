package console

import "strings"

// FirstLine is the first line of a text, with a sign that there are more.
func FirstLine(s string) string {
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more {
		line += " …"
	}
	return line
}

// ShortID is the beginning of an id that is long enough to find it by.
func ShortID(id string) string {
	if len(id) > 13 {
		return id[:13]
	}
	return id
}

// Some lists names, a line each, and no more than a screen takes. Strangers may have
// chosen them.
func (w *Writer) Some(names []string) {
	const most = 20
	for i, name := range names {
		if i == most {
			w.Printf("  and %d more\n", len(names)-most)
			return
		}
		w.Printf("  %s\n", name)
	}
}
