package console

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
