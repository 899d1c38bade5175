import type { Format } from './format.ts'

/** One range of an `Accept` header, and its parameters. */
const RANGE = /^\s*([^;\s]+)\s*(?:;(.*))?$/

/**
 * The format that an `Accept` header asks for. OpenMetrics has to be named, and wanted no less than plain text:
 * a browser's "anything" is text.
 */
export function formatFor(accept: string | undefined): Format {
  let openmetrics = 0
  let text = 0
  for (const part of (accept ?? '').slice(0, 1_024).split(',')) {
    const [, type = '', parameters = ''] = RANGE.exec(part.toLowerCase()) ?? []
    const quality = qualityOf(parameters)
    if (type === 'application/openmetrics-text') openmetrics = Math.max(openmetrics, quality)
    if (type === 'text/plain') text = Math.max(text, quality)
  }
  return openmetrics > 0 && openmetrics >= text ? 'openmetrics' : 'text'
}

function qualityOf(parameters: string): number {
  const [, digits] = /(?:^|;)\s*q=([^;]*)/.exec(parameters) ?? []
  const quality = digits === undefined ? 1 : Number(digits)
  return Number.isNaN(quality) ? 0 : Math.min(quality, 1)
}
