/** The text shown in place of a secret. */
export const REDACTED = '[redacted]'

/** Shortest text of a variable that is redacted, in characters: shorter texts also occur in unrelated words. */
const LEAST_HIDDEN = 8

/** Messages quote at most this many characters of a text, so this beginning of a secret is redacted too. */
const SHOWN = 60

/** Returns a message with `[redacted]` in place of all texts that came from variables. */
export function withoutInterpolated(message: string, interpolated: ReadonlySet<string>): string {
  let hidden = message
  for (const text of interpolated)
    if (text.length >= LEAST_HIDDEN)
      hidden = hidden.replaceAll(text, REDACTED).replaceAll(text.slice(0, SHOWN), REDACTED)
  return hidden
}

/**
 * Matches a text that consists of references to variables. References with defaults do not match, because a default may
 * be a secret.
 */
const REFERENCES = /^(?:\$\{(?:[a-z]+:)?[A-Za-z_]\w*\})+$/

/** Returns true if a value only refers to a secret: `${TOKEN}`, `Bearer ${TOKEN}`. */
export function isReference(value: string): boolean {
  return REFERENCES.test(value.replace(/^(?:bearer|basic|token) +/i, ''))
}

/** Returns true if user and password of a URL contain no secret: `user:${PASSWORD}`, `${TOKEN}`. */
export function isPlainLogin(login: string): boolean {
  const colon = login.indexOf(':')
  const user = login.slice(0, Math.max(colon, 0))
  return isReference(login.slice(colon + 1)) && !looksLikeKey(user) && user.search(SECRET_SHAPE) === -1
}

// A secret is recognized by the name before it, by its place in a URL, or by its shape. Other texts stay, such as
// ports, paths, versions and packages, so a command line remains recognizable.

/** Parts of names that mean a secret: `--api-key`, `DB_PASS`, `clientSecret`. */
const SECRET_PARTS = new Set(
  (
    'key apikey token secret secrets password passwords passwd passphrase pass pwd pw auth authorization bearer ' +
    'credential credentials cookie cookies header jwt pat dsn signature sig'
  ).split(' '),
)

/** Endings of names that mean a secret, without a separator before: `PGPASSWORD`, `authtoken`. */
const SECRET_END = /(?:apikey|accesskey|privatekey|token|secret|passw(?:or)?d|passphrase|credentials?)$/

/**
 * Plurals that mean a secret only together with another word: `API_KEYS`, but not `KEYS`, which may be a number or a
 * switch.
 */
const PLURALS = new Set(['keys', 'tokens'])

/** Endings of names whose value is not the secret itself, but its place, length or kind. */
const HARMLESS_END = new Set(
  'file path dir folder name type mode url uri endpoint length limit count ttl'.split(' '),
)
const HARMLESS_START = new Set(['max', 'min', 'num'])
const HARMLESS_KEYS = new Set(['public', 'primary', 'foreign', 'sort', 'partition'])

/** Matches keys with the prefix of their issuer, such as `sk-` or `ghp_`. */
const SECRET_SHAPE = /\b(?:sk-|gh[opsu]_|github_pat_|xox[abeprs]-|glpat-|AKIA|eyJ)[\w.-]{8,}/g

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i

/**
 * Matches values of `-p` that are no passwords: ports and port mappings, versions, paths, and packages with a scope.
 */
const NO_PASSWORD = /^(?:\d{1,5}(?::\d{1,5})*|\d+(?:\.\d+)+|[./~@].*)$/s

/** Returns true if a name means that its value is a secret. */
export function isSecretName(name: string): boolean {
  const parts = name
    .replace(/([a-z0-9])([A-Z])/g, '$1-$2')
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((part) => part !== '')
  if (HARMLESS_START.has(parts[0] ?? '') || HARMLESS_END.has(parts.at(-1) ?? '')) return false
  return parts.some((part, index) => {
    if (part === 'key' && HARMLESS_KEYS.has(parts[index - 1] ?? '')) return false
    if (PLURALS.has(part)) return parts.length > 1
    return SECRET_PARTS.has(part) || SECRET_END.test(part)
  })
}

/**
 * Returns true if a word looks like a generated key: a UUID, or a mix of letters and digits of at least 16 characters.
 */
export function looksLikeKey(word: string): boolean {
  if (UUID.test(word)) return true
  if (!/^[\w.~=+-]{16,}$/.test(word)) return false
  const letters = word.replace(/[^A-Za-z0-9]/g, '')
  const turns = letters.match(/[A-Za-z](?=\d)|\d(?=[A-Za-z])/g)?.length ?? 0
  if (letters.length < 16 || turns < 3) return false
  return letters.length === word.replace(/=+$/, '').length || (/[a-z]/.test(word) && /[A-Z]/.test(word))
}

/** Removes user, password, query values, fragment, and key-like path segments from every URL within `text`. */
export function redactUrls(text: string): string {
  // The pattern does not match the scheme, because the search would then restart at each letter of every word.
  return text.replace(/:\/\/([^\s"'<>]*)/g, (_, rest: string) => {
    const [, authority = '', path = '', query] = /^([^/?#]*)([^?#]*)(?:\?([^#]*))?/.exec(rest) ?? []
    const at = authority.lastIndexOf('@')
    const host =
      at === -1 || isPlainLogin(authority.slice(0, at)) ? authority : REDACTED + authority.slice(at)
    return (
      '://' +
      host +
      path.split('/').map(redactSegment).join('/') +
      (query === undefined ? '' : `?${query.split('&').map(redactParameter).join('&')}`)
    )
  })
}

function redactSegment(segment: string): string {
  if (segment.length < 8) return segment
  return looksLikeKey(segment) ? REDACTED : segment.replace(SECRET_SHAPE, REDACTED)
}

function redactParameter(parameter: string): string {
  const equals = parameter.indexOf('=')
  if (isReference(parameter.slice(equals + 1))) return parameter
  return equals === -1 ? REDACTED : parameter.slice(0, equals + 1) + REDACTED
}

/** Returns a text, such as a line of a server's output, without secrets in URLs or secrets recognized by shape. */
export function redactShapes(text: string): string {
  return redactUrls(text).replace(SECRET_SHAPE, REDACTED)
}

/**
 * Returns a command line without apparent secrets: values of secret options, parts of URLs, and words with the shape of
 * a key.
 */
export function redactArgs(args: readonly string[]): string[] {
  return args.map((arg, index) => {
    const value = valueOf(args[index - 1], arg)
    if (value !== undefined) return value
    const text = redactPairs(redactShortOption(arg))
    return looksLikeKey(text) ? REDACTED : redactShapes(text)
  })
}

/**
 * Returns a word as shown after an option: redacted if the option means a secret; undefined if the option does not
 * decide.
 */
function valueOf(option: string | undefined, word: string): string | undefined {
  const [, name] = /^--?([\w][\w.-]*)$/.exec(option ?? '') ?? []
  if (name === undefined || option === undefined || word.startsWith('-') || isReference(word))
    return undefined
  if (option === '-H') return isReference(word.replace(/^[\w-]+: */, '')) ? undefined : REDACTED
  if (name.length > 1 && isSecretName(name)) return REDACTED
  if (option === '-p') return NO_PASSWORD.test(word) ? undefined : REDACTED
  const colon = word.indexOf(':')
  const isUser = (name === 'u' || name === 'user') && colon > 0 && !word.includes('://')
  return isUser && !isPlainLogin(word) ? word.slice(0, colon + 1) + REDACTED : undefined
}

/** Redacts the password in the form of database clients: `-pS3cret`. */
function redactShortOption(arg: string): string {
  const [, word = ''] = /^-p=?(\S{4,})$/.exec(arg) ?? []
  return /\d/.test(word) && /[A-Za-z]/.test(word) && !NO_PASSWORD.test(word) ? `-p${REDACTED}` : arg
}

/**
 * Redacts the values in `--token=…`, `API_KEY=…` and `Authorization: …`. In a text of several words, a value ends at a
 * space or quote if possible.
 */
function redactPairs(text: string): string {
  const [, start = '', name = ''] = /^((?:--?)?([\w.-]{1,100})\s*=)/.exec(text) ?? []
  if (text.length > start.length && isSecretName(name))
    return isReference(text.slice(start.length)) ? text : start + REDACTED
  for (const { 0: before, 1: named = '', index } of text.matchAll(
    /([\w.-]{1,100})["']?\s{0,9}:\s{0,9}(?=[^\s/])/g,
  ))
    if (isSecretName(named)) {
      const value = text.slice(index + before.length)
      return redactWords(text.slice(0, index)) + before + (isReference(value) ? value : REDACTED)
    }
  return redactWords(text)
}

function redactWords(text: string): string {
  return text
    .replace(
      /([\w.-]{1,100})=("[^"]*"|'[^']*'|[^\s;&|"']+)/g,
      (whole: string, name: string, value: string) =>
        isSecretName(name) && !isReference(value) ? `${name}=${REDACTED}` : whole,
    )
    .replace(
      /(^|\s)(--?[\w][\w.-]{0,99})(\s+)("[^"]*"|'[^']*'|[^\s"'-]\S*)/g,
      (whole, gap: string, option: string, space: string, word: string) => {
        const value = valueOf(option, word)
        return value === undefined ? whole : gap + option + space + value
      },
    )
}
