/* Student's t distribution. Internal to frontend/. */
#ifndef F8_STUDENT_H
#define F8_STUDENT_H

/* The probability that |T| is at least |t|, with `freedom` degrees of freedom, above 0 and up to
 * 100,000: beyond it loses digits. NaN of NaN. */
double f8_student_p(double t, double freedom);
/* The t that |T| stays below with the probability `level`, which is below 1. */
double f8_student_t(double level, double freedom);

#endif
