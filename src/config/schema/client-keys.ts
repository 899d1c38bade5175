import { z } from 'zod'
import { isPlainMap } from './server-names.ts'

// The keys that clients write beside the settings of a server, and that a gateway does not use. A key that no client writes
// stays a mistake.

const ofClient = 'is for a client; a gateway ignores it'
const approval = 'is about asking a person before tools are called, which clients do; a gateway ignores it'
const signIn = 'is ignored: a gateway signs in nowhere; put a token into "headers"'

/** Keys of an entry that are ignored, and what is said of each. */
export const clientKeys = {
  // Cline, Roo Code, Kiro
  autoApprove: approval,
  alwaysAllow: approval,
  watchPaths: ofClient,
  // Gemini CLI
  trust: `${approval} (what tools say of themselves is believed with "trusted")`,
  description: ofClient,
  extensionName: ofClient,
  authProviderType: signIn,
  targetAudience: signIn,
  targetServiceAccount: signIn,
  oauth: signIn,
  // Cursor
  auth: signIn,
  // Claude Code
  alwaysLoad: ofClient,
  headersHelper: 'is ignored: a gateway runs no program for headers; put them into "headers"',
  // VS Code
  dev: ofClient,
  gallery: ofClient,
  version: ofClient,
  sandbox: 'is ignored: a gateway has no sandbox for servers',
  sandboxEnabled: 'is ignored: a gateway has no sandbox for servers',
  // Zed
  source: ofClient,
  settings: ofClient,
  // Cherry Studio, Continue
  name: ofClient,
} as const

type ClientKey = keyof typeof clientKeys

const ofAnEditor = z.unknown().optional().describe('Of a client; a gateway has no use for it.')

/** The schema of `clientKeys`. */
export const clientKeyShape = Object.fromEntries(
  Object.keys(clientKeys).map((key) => [key, ofAnEditor]),
) as Record<ClientKey, typeof ofAnEditor>

/** Keys that only clients write which give `timeout` in seconds: Cline and Roo Code. */
const bySeconds = ['alwaysAllow', 'autoApprove', 'watchPaths', 'disabledTools', 'transportType']

/** Keys that only clients write which give it in milliseconds: Gemini CLI, Claude Code, Zed. */
const byMilliseconds = [
  'httpUrl',
  'trust',
  'includeTools',
  'excludeTools',
  'headersHelper',
  'alwaysLoad',
  'authProviderType',
  'source',
]

/** Longest `timeout` that clients take which count in seconds. */
const MOST_SECONDS = 3_600

/** Shortest that clients take which count in milliseconds: a server answers nothing in less. */
const LEAST_MILLISECONDS = 1_000

/**
 * The unit of a `timeout` that is a bare number, which clients disagree about. More than an hour in seconds is milliseconds,
 * less than a second in milliseconds is seconds; between them, and always for clients with milliseconds, the keys of the entry
 * tell who wrote it, or else those of the entries beside it. Undefined when nothing tells.
 */
export function timeoutUnit(
  timeout: number,
  entry: Readonly<Record<string, unknown>>,
  beside: readonly unknown[] = [],
): 's' | 'ms' | undefined {
  if (timeout > MOST_SECONDS) return 'ms'
  for (const written of [[entry], beside]) {
    const has = (keys: readonly string[]) =>
      written.some((held) => isPlainMap(held) && keys.some((key) => key in held))
    const [seconds, milliseconds] = [has(bySeconds), has(byMilliseconds)]
    if (seconds !== milliseconds) return seconds ? 's' : 'ms'
  }
  return timeout < LEAST_MILLISECONDS ? 's' : undefined
}

/** Says of an entry's bare `timeout` what it is taken for. */
export function withTimeoutUnit(
  entry: Readonly<Record<string, unknown>>,
  beside: readonly unknown[] = [],
): Readonly<Record<string, unknown>> {
  const { timeout } = entry
  if (typeof timeout !== 'number') return entry
  const unit = timeoutUnit(timeout, entry, beside)
  return unit === undefined ? entry : { ...entry, timeout: `${timeout}${unit}` }
}
