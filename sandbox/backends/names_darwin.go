package backends

var names = []string{"seatbelt", "none"}
