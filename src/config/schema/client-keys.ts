import { z } from 'zod'
import { isPlainMap } from './server-names.ts'

// This file lists keys that clients write beside a server's settings, and that a gateway ignores. All other unknown
// keys are mistakes.

const ofClient = 'is for a client; a gateway ignores it'
const approval = 'is about asking a person before tool calls, which only clients do; a gateway ignores it'
const signIn = 'is ignored: a gateway signs in nowhere; put a token into "headers"'

/** Ignored keys of an entry, with a description for each. */
export const clientKeys = {
  // Cline, Roo Code, Kiro
  autoApprove: approval,
  alwaysAllow: approval,
  watchPaths: ofClient,
  // Gemini CLI
  trust: `${approval} ("trusted" believes the annotations of tools)`,
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

const ofAnEditor = z.unknown().optional().describe('For clients; a gateway ignores it.')

export const clientKeyShape = Object.fromEntries(
  Object.keys(clientKeys).map((key) => [key, ofAnEditor]),
) as Record<ClientKey, typeof ofAnEditor>

/** Keys of clients with `timeout` in seconds: Cline and Roo Code. Other clients never write these keys. */
const bySeconds = ['alwaysAllow', 'autoApprove', 'watchPaths', 'disabledTools', 'transportType']

/**
 * Keys of clients with `timeout` in milliseconds: Gemini CLI, Claude Code, Zed. Other clients never write these keys.
 */
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

/** Longest `timeout` of clients counting in seconds. */
const MOST_SECONDS = 3_600

/** Shortest `timeout` of clients counting in milliseconds: a shorter timeout would end most calls. */
const LEAST_MILLISECONDS = 1_000

/**
 * Returns the unit of a `timeout` without a unit, about which clients disagree. A number above 3,600 is in
 * milliseconds. Otherwise the keys of the entry, or else of the other entries, show the client and so its unit. Without
 * such keys, a number below 1,000 is in seconds; undefined for larger numbers.
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

/** Adds the assumed unit to an entry's bare `timeout`. */
export function withTimeoutUnit(
  entry: Readonly<Record<string, unknown>>,
  beside: readonly unknown[] = [],
): Readonly<Record<string, unknown>> {
  const { timeout } = entry
  if (typeof timeout !== 'number') return entry
  const unit = timeoutUnit(timeout, entry, beside)
  return unit === undefined ? entry : { ...entry, timeout: `${timeout}${unit}` }
}
