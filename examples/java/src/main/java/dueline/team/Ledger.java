package dueline.team;

import dueline.contract.Task;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

/** The team's own database: charges, and the keys that were handled. */
final class Ledger implements AutoCloseable {
    private final Connection db;

    Ledger(String path) throws SQLException {
        db = DriverManager.getConnection("jdbc:sqlite:" + path);
        try (var statement = db.createStatement()) {
            statement.execute("pragma journal_mode = wal");
            statement.execute("create table if not exists handled (key_hash text primary key) without rowid");
            statement.execute("create table if not exists charge (account text, cents integer)");
        }
        db.setAutoCommit(false);
    }

    /** Charges, unless this key was charged before. One transaction for both. */
    void once(Task task) throws SQLException, Refused, Busy {
        try {
            boolean isNew;
            try (var insert = db.prepareStatement("insert into handled values (?) on conflict do nothing")) {
                insert.setString(1, task.keyHash());
                isNew = insert.executeUpdate() == 1;
            }
            if (isNew) {
                charge(task);
            }
            db.commit();
        } catch (SQLException | Refused | Busy | RuntimeException failed) {
            db.rollback();
            throw failed;
        }
    }

    /** The business: what you write instead. */
    private void charge(Task task) throws SQLException, Refused, Busy {
        var order = task.payload();
        if (!order.has("cents")) {
            throw new Refused("the order has no amount");
        }
        // An account that answers at the second try only, to show a retry.
        if (order.path("busy").asBoolean() && task.attempt() == 0) {
            throw new Busy("the bank does not answer");
        }
        try (var insert = db.prepareStatement("insert into charge values (?, ?)")) {
            insert.setString(1, task.key());
            insert.setLong(2, order.get("cents").asLong());
            insert.executeUpdate();
        }
    }

    void printCharges() throws SQLException {
        try (var statement = db.createStatement();
                var rows = statement.executeQuery("select account, cents from charge order by account")) {
            while (rows.next()) {
                System.out.println(rows.getString(1) + " " + rows.getLong(2));
            }
        }
    }

    @Override
    public void close() throws SQLException {
        db.close();
    }

    /** The charge can never succeed. */
    static final class Refused extends Exception {
        Refused(String reason) {
            super(reason);
        }
    }

    /** The charge may succeed later. */
    static final class Busy extends Exception {
        Busy(String reason) {
            super(reason);
        }
    }
}
