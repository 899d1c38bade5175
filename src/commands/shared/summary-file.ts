import type { HandIn } from '../../evidence/hand-in.ts'
import { LONGEST_NAME, LONGEST_TEXT } from '../../evidence/summary.ts'
import { numbered } from '../../units/numbered.ts'

/** The option that writes the summary of a run, for `breakwater runs add`. */
export const summaryOption = {
  kind: 'text',
  value: 'FILE',
  about: 'also writes a summary of each run, for `breakwater runs add FILE`',
} as const

/** Returns documents as text, one JSON document a line. */
export const documentLines = (documents: readonly HandIn[]): string =>
  documents.map((document) => `${JSON.stringify(document)}\n`).join('')

export const summaryHint = (path: string, runs: number): string =>
  `breakwater: ${path} has ${numbered(runs, 'run')}${runs === 0 ? ': no fault was injected' : `; keep it: breakwater runs add ${path}`}`

/** Cuts a name, and any other text, to the length that fits into a summary. */
export const fittedName = (text: string): string => text.slice(0, LONGEST_NAME)
export const fittedText = (text: string): string => text.slice(0, LONGEST_TEXT)
