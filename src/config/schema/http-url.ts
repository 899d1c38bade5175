import { z } from 'zod'

/** Returns true if user and password of a URL can be decoded, because they are sent as a header. */
function hasReadableUser(text: string): boolean {
  if (!URL.canParse(text)) return true
  const { username, password } = new URL(text)
  try {
    for (const part of [username, password]) decodeURIComponent(part)
    return true
  } catch {
    return false
  }
}

/** Returns an error naming the wrong part of a URL. */
function expected(text: unknown): string {
  const [, beside = ''] = /^https?:\/\/([^]*)$/i.exec(String(text)) ?? []
  if (beside === '') return 'expected a URL that begins with http:// or https://, and names a host'
  const port = /^[^/?#]*:(\d+)(?:[/?#]|$)/.exec(beside)?.[1]
  if (Number(port) > 65_535) return 'expected a URL with a port up to 65535'
  const [wrong] = /[\s#]/.exec(beside) ?? []
  if (wrong === undefined) return 'expected an http:// or https:// URL'
  return `expected an http:// or https:// URL without ${wrong === '#' ? '#' : 'spaces'}`
}

/** Returns a schema for the URL of requests. Each caller registers the secrecy of the URL. */
export const httpUrl = () =>
  z
    .string()
    .regex(/^https?:\/\/[^\s#]+$/i, { error: ({ input }) => expected(input) })
    .refine((text) => URL.canParse(text), { error: ({ input }) => expected(input) })
    .refine(
      hasReadableUser,
      'expected user and password in the URL with % only before two hex digits, as UTF-8',
    )
