import { isSecretName, REDACTED, redactShapes } from '../config/secrets/redact-text.ts'
import type { ServerConfig } from '../config/schema/schema.ts'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { printable } from '../telemetry/printable.ts'
import { ownText } from '../units/recent.ts'

// Quotes servers' texts in errors. A server may repeat its input, so all secrets of its config are removed first.

/** Longest quoted excerpt, in characters. */
const LONGEST_EXCERPT = 300

/** Most characters of a text that are examined. */
const LOOKED_AT = 8 * 1024

/** Longest word that this limit may cut, in characters. */
const LONGEST_WORD = 1024

/**
 * Shortest value that is removed, in characters, unless its name marks it as a secret: shorter values occur in any
 * text.
 */
const SHORTEST_SECRET = 4

/** Shortest secret also searched in base64 and hexadecimal, in characters. */
const SHORTEST_ENCODED = 8

/** Removes secrets from a text. */
export type Conceal = (text: string) => string

/** Values given to a server that errors must not repeat. */
interface Given {
  /** Environment variables or headers. */
  readonly named: Readonly<Record<string, string>>
  readonly args?: readonly string[]
  readonly urls?: readonly string[]
}

/** Returns a function to remove config values and recognisable secrets from a server's texts. */
export function concealing(config: ServerConfig): Conceal {
  if (config.type !== 'stdio') return concealingGiven({ named: config.headers, urls: config.urls })
  return concealingGiven({ named: config.env, args: config.args })
}

/** Like `concealing`, for values known from elsewhere. */
export function concealingGiven({ named, args = [], urls = [] }: Given): Conceal {
  const secrets = [
    ...Object.entries(named).flatMap(([name, value]) => [
      ...partsOf(value, isSecretName(name)),
      ...passwordsIn(value),
    ]),
    ...args.flatMap((arg, index) => secretOf(arg, args[index - 1])),
    ...urls.flatMap(secretsOfUrl),
  ]
  // Longest first: a secret may be part of another secret.
  const known = [...new Set(secrets.flatMap(spellingsOf))].toSorted((one, other) => other.length - one.length)
  return (text) => {
    let shown = text
    for (const secret of known) if (shown.includes(secret)) shown = shown.replaceAll(secret, REDACTED)
    return redactShapes(shown)
  }
}

/** Values that are no secrets: words in front of secrets, and common settings. */
const HARMLESS =
  /^(?:bearer|basic|digest|true|false|yes|none|null|test|development|staging|production|debug|info|warn|error|localhost|[\d.]{1,15})$/i

/**
 * Returns a value and its lines, because programs write by line. For secrets also the words: a server may repeat only
 * the second word of `Bearer …`.
 */
function partsOf(value: string, isSecret: boolean): string[] {
  const isTold = (part: string) => part.length >= SHORTEST_SECRET && !HARMLESS.test(part)
  if (!isSecret) return [value, ...value.split(/[\r\n]+/)].filter(isTold)
  const words = [...value.split(/\s+/), ...value.split(/[\s,;:=]+/)]
  return [value.trim(), ...words.filter(isTold)].filter((part) => part !== '')
}

/** Returns the secrets in a command-line argument, as in `--token s3cret` or `--token=s3cret`. */
function secretOf(arg: string, before: string | undefined): string[] {
  const [, name = '', value = ''] = /^-{0,2}([\w.-]+)=(.+)$/s.exec(arg) ?? []
  if (value !== '' && isSecretName(name)) return partsOf(value, true)
  const option = /^--?([\w][\w.-]*)$/.exec(before ?? '')?.[1]
  return option !== undefined && isSecretName(option) && !arg.startsWith('-') ? partsOf(arg, true) : []
}

/** Returns the password in a database URL or a `Basic` header. */
function passwordsIn(value: string): string[] {
  if (URL.canParse(value)) {
    const { password } = new URL(value)
    return [password, decoded(password)].filter((part) => part !== '')
  }
  const [, login = ''] = /^basic\s+(\S+)$/i.exec(value.trim()) ?? []
  const [, password = ''] = /:(.+)$/s.exec(Buffer.from(login, 'base64').toString()) ?? []
  return password.length < SHORTEST_SECRET ? [] : [password]
}

/**
 * Returns the credentials and query values of a URL, both decoded and as written: servers repeat an unknown path
 * unchanged.
 */
function secretsOfUrl(text: string): string[] {
  if (!URL.canParse(text)) return []
  const { username, password, search, searchParams } = new URL(text)
  const written = search.split(/[?&]/).flatMap((pair) => (/=(.*)/s.exec(pair) ?? []).slice(1))
  return [username, password, decoded(password), ...written, ...searchParams.values()].filter(
    (part) => part.length >= SHORTEST_SECRET,
  )
}

/** Returns all spellings of a secret: plain, in JSON, in HTML, and in a URL with hex digits of either case. */
function spellingsOf(secret: string): string[] {
  // Converts to UTF-8 and back: half a surrogate pair cannot be in a URL.
  const sent = Buffer.from(secret).toString()
  const inUrl = [encodeURIComponent(sent), strictlyEncoded(sent)]
  const lowered = inUrl.map((text) => text.replace(/%../g, (code) => code.toLowerCase()))
  const inHtml = secret.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
  const quoted = [
    ['&quot;', '&#39;'],
    ['&quot;', '&#x27;'],
    ['&quot;', '&apos;'],
    ['&#34;', '&#39;'],
  ].map(([double = '', single = '']) => inHtml.replaceAll('"', double).replaceAll("'", single))
  const inJson = JSON.stringify(secret).slice(1, -1)
  // Go escapes JSON for HTML.
  const inGo = inJson.replaceAll('&', '\\u0026').replaceAll('<', '\\u003c').replaceAll('>', '\\u003e')
  // The base64 or hexadecimal digits of a short secret occur in any text.
  const encoded = secret.length < SHORTEST_ENCODED ? [] : encodingsOf(Buffer.from(secret))
  return [secret, inJson, inGo, ...inUrl, ...lowered, inHtml, ...quoted, ...encoded]
}

/** Returns a secret in hexadecimal and base64, alone and inside other data. */
function encodingsOf(bytes: Buffer): string[] {
  const hex = bytes.toString('hex')
  const alone = [bytes.toString('base64').replace(/=+$/, ''), bytes.toString('base64url')]
  // Base64 writes three bytes as four digits. Behind one or two other bytes, a secret has other digits, and shares its
  // first and last digit with other bytes.
  const within = [0, 1, 2].flatMap((before) => {
    const all = Buffer.concat([Buffer.alloc(before), bytes])
    const [first, end] = [Math.ceil((before * 8) / 6), Math.floor((all.length * 8) / 6)]
    return [all.toString('base64').slice(first, end), all.toString('base64url').slice(first, end)]
  })
  return [...alone, ...within, hex, hex.toUpperCase()]
}

/** Encodes all characters reserved by RFC 3986, including some left alone by `encodeURIComponent`. */
function strictlyEncoded(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    // No percent-encoding: the text is literal.
    return part
  }
}

/** Quotes a server's words as one line of at most 300 characters; undefined when the server said nothing. */
export function excerptOf(text: string, conceal: Conceal): string | undefined {
  const line = beginningOf(text, conceal).replace(/\s+/g, ' ').trim()
  // The excerpt may stay in memory for long, and must not keep the large text there.
  return line === ''
    ? undefined
    : `"${printable(ownText(line.slice(0, LONGEST_EXCERPT + 1)), LONGEST_EXCERPT)}"`
}

/** Returns the beginning of a text without its secrets, at most `longest` characters. */
export function beginningOf(text: string, conceal: Conceal, longest = LOOKED_AT): string {
  return conceal(wholeWordsOf(text)).slice(0, longest)
}

/** Returns the examined part of a text without a cut word at its end: half of a secret would not be recognised. */
function wholeWordsOf(text: string): string {
  if (text.length <= LOOKED_AT) return text
  const last = text.slice(LOOKED_AT - LONGEST_WORD, LOOKED_AT)
  return text.slice(0, LOOKED_AT - LONGEST_WORD + Math.max(0, last.search(/\s\S*$/)))
}

/** Quotes the body of a refusal like `excerptOf`: the message of JSON, the title of HTML. */
export function excerptOfBody(text: string, conceal: Conceal): string | undefined {
  if (/^\s*</.test(text)) {
    const [, title = ''] = /<title[^>]{0,200}>([^<]*)/i.exec(wholeWordsOf(text)) ?? []
    return excerptOf(title, conceal)
  }
  return excerptOf(
    (/^\s*\{/.test(text) && text.length <= LOOKED_AT ? messageIn(parseJson(text)) : undefined) ?? text,
    conceal,
  )
}

/** Returns the message of a JSON error body: JSON-RPC, OAuth, RFC 9457, and common forms. */
function messageIn(value: unknown): string | undefined {
  if (!isObject(value)) return undefined
  const { error } = value
  const said = isObject(error)
    ? error.message
    : (value.error_description ?? value.detail ?? value.message ?? error)
  return typeof said === 'string' ? said : undefined
}
