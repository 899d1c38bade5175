import { z } from 'zod'

/** User and password are sent as a header, for which they have to be decoded. */
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

/** A URL to which requests are sent. How secret it is says who takes it. */
export const httpUrl = () =>
  z
    .string()
    .regex(/^https?:\/\/[^\s#]+$/i, 'expected an http:// or https:// URL without #')
    .refine((text) => URL.canParse(text), 'expected an http:// or https:// URL')
    .refine(
      hasReadableUser,
      'expected user and password in the URL with % only before two hex digits, as UTF-8',
    )
