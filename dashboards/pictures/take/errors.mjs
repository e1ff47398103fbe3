// The one kind of error that is the user's: a wrong command line.
export class UsageError extends Error {}
