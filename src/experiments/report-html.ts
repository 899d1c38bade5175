import { markdownOf } from './report-text.ts'
import type { Report } from './report.ts'

export const htmlOf = (report: Report): string => markdownOf(report)
