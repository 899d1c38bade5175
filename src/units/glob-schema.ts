import { z } from 'zod'

/** A glob over names. Refuses special characters of other pattern languages, because a literal match is unlikely. */
export const globPattern = z
  .string()
  .regex(
    /^[^\s{}[\]()|^$\\!]+$/,
    'expected a glob, in which * is any text and ? any character, without spaces and {}[]()|^$\\!',
  )
