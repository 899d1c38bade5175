import { z } from 'zod'

/** A glob over names. Characters that only other languages of patterns use are refused: they would match nothing. */
export const globPattern = z
  .string()
  .regex(
    /^[^\s{}[\]()|^$\\!]+$/,
    'expected a glob, in which * is any text and ? any character, without spaces and {}[]()|^$\\!',
  )
