/* XIDs in the kernel's log: see health.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/probe/health.h"

bool f8_xid_parse(const char *line, f8_xid *out)
{
    static const char begin[] = "NVRM: Xid (";
    const char *at = strstr(line, begin);
    if (!at)
        return false;
    at += strlen(begin);
    if (!strncmp(at, "PCI:", 4)) /* old drivers leave it out */
        at += 4;
    const size_t n = strcspn(at, ")");
    char *end;
    if (!n || n >= sizeof out->address || strncmp(at + n, "): ", 3) != 0)
        return false;
    const long number = strtol(at + n + 3, &end, 10);
    if (end == at + n + 3 || number < 0 || number > 100000 || (*end != ',' && *end))
        return false;
    memcpy(out->address, at, n);
    out->address[n] = '\0';
    out->number = (int)number;
    return true;
}

/* The log has the address with or without the function, ".0". */
static bool is_at(const f8_xid *x, const char *address)
{
    const size_t n = strlen(x->address);
    return !strncasecmp(x->address, address, n) && (!address[n] || address[n] == '.');
}

typedef struct count {
    const char *address;
    int64_t n;
    int *last;
} count;

static void take(count *c, const char *line)
{
    f8_xid x;
    if (!f8_xid_parse(line, &x) || !is_at(&x, c->address))
        return;
    c->n++;
    *c->last = x.number;
}

/* A read of /dev/kmsg gives one record; EPIPE: older ones are gone. */
static bool read_kmsg(const char *path, count *c)
{
    enum { RECORD = 8192, MOST = 1 << 20 };
    char record[RECORD + 1];
    const int f = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (f < 0)
        return false;
    for (int i = 0; i < MOST; i++) {
        const ssize_t n = read(f, record, RECORD);
        if (n <= 0 && !(n < 0 && (errno == EPIPE || errno == EINTR)))
            break;
        record[n > 0 ? n : 0] = '\0';
        take(c, record);
    }
    close(f);
    return true;
}

static bool read_log(const char *path, count *c)
{
    char *line = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (getline(&line, &room, f) > 0)
        take(c, line);
    free(line);
    fclose(f);
    return true;
}

int64_t f8_xid_count(const char *root, const char *address, int *last)
{
    char kmsg[256], log[256];
    count c = {.address = address, .last = last};
    *last = 0;
    snprintf(kmsg, sizeof kmsg, "%s/dev/kmsg", root);
    snprintf(log, sizeof log, "%s/var/log/kern.log", root);
    return read_kmsg(kmsg, &c) || read_log(log, &c) ? c.n : -1;
}
